#include "replay/trace_reader.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/digest.h"
#include "base/prng.h"
#include "model/json_text.h"

namespace stemma {

namespace {

constexpr std::int64_t kTokensMax = std::int64_t{1} << 40;
constexpr std::size_t kPlaces = std::size_t{1} << 20;
constexpr std::array<TraceFormat, 3> kFormats = {{
    {"mooncake", 512, 1},
    {"qwen-bailian", 16, 1000},
    {"prompts", 64, 1e-3, /*of_text=*/true},
}};
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

Status read_lengths_and_hashes(const nlohmann::json& line, std::string_view where,
                               JsonFields& fields, TraceRequest& request) {
  request.input_tokens = fields.integer("input_length", {0, kTokensMax}, std::nullopt);
  request.output_tokens = fields.integer("output_length", {0, kTokensMax}, std::nullopt);
  STEMMA_RETURN_IF_ERROR(fields.status());
  STEMMA_ASSIGN_OR_RETURN(request.page_hashes, read_hashes(line, where));
  return {};
}

bool begins_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) != 0x80;  // in UTF-8
}

std::int64_t characters_in(std::string_view text) {
  return std::count_if(text.begin(), text.end(), begins_character);
}

// The id of a page: a digest of its text and of the id before it, so that an id has one prefix.
std::int64_t hash_page(std::int64_t hash_before, std::string_view text, Sha256& hasher) {
  hasher.update(std::as_bytes(std::span(&hash_before, 1)));
  hasher.update(text);
  const Sha256Digest digest = hasher.finish();
  std::int64_t hash = 0;
  std::memcpy(&hash, digest.data(), sizeof(hash));
  return hash & std::numeric_limits<std::int64_t>::max();
}

std::vector<std::int64_t> hash_text(std::string_view text, std::int64_t page_characters) {
  Sha256 hasher;
  std::vector<std::int64_t> hashes;
  std::int64_t hash = 0;
  std::int64_t characters = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && !begins_character(text[i])) continue;
    if (characters == page_characters) {
      hash = hash_page(hash, text.substr(begin, i - begin), hasher);
      hashes.push_back(hash);
      begin = i;
      characters = 0;
    }
    ++characters;
  }
  return hashes;
}

Status read_text(std::int64_t page_characters, JsonFields& fields, TraceRequest& request) {
  const std::string input = fields.text("input", std::nullopt);
  const std::string output = fields.text("output", "");
  STEMMA_RETURN_IF_ERROR(fields.status());
  request.input_tokens = characters_in(input);
  request.output_tokens = characters_in(output);
  request.page_hashes = hash_text(input, page_characters);
  return {};
}

}  // namespace

Result<TraceFormat> find_trace_format(std::string_view name) {
  std::string known;
  for (const TraceFormat& format : kFormats) {
    if (format.name == name) return format;
    known += (known.empty() ? "" : ", ") + std::string(format.name);
  }
  return Error{ErrorCode::kNotFound,
               "--format: unknown trace format '" + printable(name) + "' (known: " + known + ")"};
}

Result<TraceRequest> parse_trace_line(std::string_view line, const TraceFormat& format,
                                      std::string_view where) {
  STEMMA_ASSIGN_OR_RETURN(const nlohmann::json object, parse_json_object(line, where, kLineLimits));
  JsonFields fields(object, where);
  TraceRequest request;
  const nlohmann::json* timestamp = fields.find_or_null("timestamp");
  if (timestamp == nullptr || !timestamp->is_number()) {
    return wrong(where, "timestamp", "a number is wanted");
  }
  request.timestamp_ms = timestamp->get<double>() * format.ms_per_time_unit;
  STEMMA_RETURN_IF_ERROR(format.of_text ? read_text(format.page_tokens, fields, request)
                                        : read_lengths_and_hashes(object, where, fields, request));
  return request;
}

TraceConsistency::TraceConsistency() : places_(kPlaces) {}

Status TraceConsistency::check(const TraceRequest& request, std::string_view where) {
  if (any_ && request.timestamp_ms < latest_ms_) {
    return wrong(where, "timestamp", "earlier than the request before it");
  }
  std::int64_t id_before = -1;
  for (std::size_t i = 0; i < request.page_hashes.size(); ++i) {
    const std::int64_t id = request.page_hashes[i];
    Place& place = places_[mix64(static_cast<std::uint64_t>(id)) % kPlaces];
    if (place.id == id && place.id_before != id_before) {
      return wrong(where, "hash_ids[" + std::to_string(i) + "]",
                   "the id " + std::to_string(id) + " stood behind another prefix before");
    }
    place = {id, id_before};
    id_before = id;
  }
  latest_ms_ = request.timestamp_ms;
  any_ = true;
  return {};
}

Result<TraceReader> TraceReader::open(const std::string& path, const std::string& format,
                                      bool skip_bad) {
  STEMMA_ASSIGN_OR_RETURN(const TraceFormat known, find_trace_format(format));
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error{ErrorCode::kNotFound, "cannot open trace " + path, errno};
  return TraceReader(path, std::move(file), known, skip_bad);
}

TraceReader::TraceReader(std::string path, std::ifstream file, const TraceFormat& format,
                         bool skip_bad)
    : path_(std::move(path)),
      file_(std::move(file)),
      format_(format),
      skip_bad_(skip_bad),
      line_(kTraceLineBytesMax) {}

Result<bool> TraceReader::next(TraceRequest& request) {
  for (;;) {
    std::string_view line;
    STEMMA_ASSIGN_OR_RETURN(const bool more, next_line(line));
    if (!more) return false;
    const Status read = read_request(line, request);
    if (read.ok()) return true;
    if (!skip_bad_) return read.error();
    ++skipped_lines_;
  }
}

Status TraceReader::read_request(std::string_view line, TraceRequest& request) {
  if (line.size() == kTraceLineBytesMax) {
    return wrong(where(), "line", "longer than " + std::to_string(kTraceLineBytesMax) + " bytes");
  }
  STEMMA_ASSIGN_OR_RETURN(request, parse_trace_line(line, format_, where()));
  return consistency_.check(request, where());
}

// A line that is too long is passed over to its end; what is given of it has kTraceLineBytesMax
// bytes.
Result<bool> TraceReader::next_line(std::string_view& line) {
  for (;;) {
    file_.getline(line_.data(), static_cast<std::streamsize>(line_.size()));
    if (file_.bad()) return Error{ErrorCode::kIo, "cannot read " + path_, errno};
    ++line_number_;
    if (file_.eof() && file_.gcount() == 0) return false;
    if (file_.fail()) {
      file_.clear();
      file_.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
      line = std::string_view(line_.data(), kTraceLineBytesMax);
      return true;
    }
    line = std::string_view(line_.data());
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) return true;
  }
}

}  // namespace stemma
