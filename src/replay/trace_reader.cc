#include "replay/trace_reader.h"

#include <cerrno>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "model/json_text.h"

namespace stemma {

namespace {

constexpr std::int64_t kTokensMax = std::int64_t{1} << 40;
constexpr JsonLimits kLineLimits = {.text_bytes_max = kTraceLineBytesMax, .depth_max = 4};

Error wrong(std::string_view where, std::string_view field, std::string_view why) {
  return {ErrorCode::kCorrupt,
          std::string(where) + ": " + std::string(field) + ": " + std::string(why)};
}

Result<std::vector<std::int64_t>> read_hashes(const nlohmann::json& line, std::string_view where) {
  const auto field = line.find("hash_ids");
  if (field == line.end() || !field->is_array()) {
    return wrong(where, "hash_ids", "an array of integers is wanted");
  }
  std::vector<std::int64_t> hashes;
  hashes.reserve(field->size());
  for (const nlohmann::json& id : *field) {
    if (!id.is_number_integer()) {
      return wrong(where, "hash_ids[" + std::to_string(hashes.size()) + "]", "not an integer");
    }
    hashes.push_back(id.get<std::int64_t>());
  }
  return hashes;
}

}  // namespace

Result<TraceRequest> parse_mooncake_line(std::string_view line, std::string_view where) {
  STEMMA_ASSIGN_OR_RETURN(const nlohmann::json object, parse_json_object(line, where, kLineLimits));
  JsonFields fields(object, where);
  TraceRequest request;
  const nlohmann::json* timestamp = fields.find_or_null("timestamp");
  if (timestamp == nullptr || !timestamp->is_number()) {
    return wrong(where, "timestamp", "a number of milliseconds is wanted");
  }
  request.timestamp_ms = timestamp->get<double>();
  request.input_tokens = fields.integer("input_length", {0, kTokensMax}, std::nullopt);
  request.output_tokens = fields.integer("output_length", {0, kTokensMax}, std::nullopt);
  STEMMA_RETURN_IF_ERROR(fields.status());
  STEMMA_ASSIGN_OR_RETURN(request.page_hashes, read_hashes(object, where));
  return request;
}

Result<TraceReader> TraceReader::open(const std::string& path, const std::string& format) {
  if (format != "mooncake") {
    return Error{ErrorCode::kNotFound,
                 "--format: unknown trace format '" + printable(format) + "' (known: mooncake)"};
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error{ErrorCode::kNotFound, "cannot open trace " + path, errno};
  return TraceReader(path, std::move(file));
}

TraceReader::TraceReader(std::string path, std::ifstream file)
    : path_(std::move(path)), file_(std::move(file)), line_(kTraceLineBytesMax) {}

Result<bool> TraceReader::next(TraceRequest& request) {
  std::string_view line;
  do {
    file_.getline(line_.data(), static_cast<std::streamsize>(line_.size()));
    if (file_.bad()) return Error{ErrorCode::kIo, "cannot read " + path_, errno};
    ++line_number_;
    if (file_.eof() && file_.gcount() == 0) return false;
    if (file_.fail()) {
      return wrong(path_ + ":" + std::to_string(line_number_), "line",
                   "longer than " + std::to_string(kTraceLineBytesMax) + " bytes");
    }
    line = std::string_view(line_.data());
  } while (line.find_first_not_of(" \t\r") == std::string_view::npos);
  const std::string where = path_ + ":" + std::to_string(line_number_);
  STEMMA_ASSIGN_OR_RETURN(request, parse_mooncake_line(line, where));
  return true;
}

}  // namespace stemma
