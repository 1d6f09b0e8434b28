// Keys and values are computed for every token but the last of the output: the full pages of those
// are in the cache when the request has ended. A look-up leaves the last token of the prompt out.
#include "replay/capture_writer.h"

#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/check.h"
#include "replay/capture_format.h"

namespace stemma {

Result<CaptureWriter> CaptureWriter::create(const std::string& path, std::int64_t page_size,
                                            const CaptureSalt& salt) {
  STEMMA_CHECK(page_size >= 1, "a page holds a token");
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  if (!file) {
    const ErrorCode code =
        errno == ENOENT || errno == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kIo;
    return Error{code, "--capture: cannot write " + path, errno};
  }
  CaptureWriter writer(path, std::move(file), page_size, salt);
  nlohmann::ordered_json header;
  header["format"] = kCaptureFormat;
  header["version"] = kCaptureVersion;
  header["page_size"] = page_size;
  STEMMA_RETURN_IF_ERROR(writer.write_line(header.dump()));
  return writer;
}

CaptureWriter::CaptureWriter(std::string path, std::ofstream file, std::int64_t page_size,
                             const CaptureSalt& salt)
    : path_(std::move(path)),
      file_(std::move(file)),
      page_size_(page_size),
      hashes_(salt, page_size) {}

Status CaptureWriter::write(const CapturedRequest& request) {
  STEMMA_CHECK(1 <= request.prompt_tokens && request.prompt_tokens <= std::ssize(request.tokens),
               "a request has a prompt");
  const std::span<const TokenId> cached = request.tokens.first(request.tokens.size() - 1);
  std::vector<std::string> names =
      hashes_.name_pages(request.namespace_digest, cached, request.shared_prefix);
  const auto looked_up = static_cast<std::ptrdiff_t>((request.prompt_tokens - 1) / page_size_);
  nlohmann::ordered_json line;
  line["timestamp_ms"] = request.timestamp_ms;
  line["namespace"] = hashes_.name_namespace(request.namespace_digest);
  line["input_tokens"] = request.prompt_tokens;
  line["output_tokens"] = std::ssize(request.tokens) - request.prompt_tokens;
  line["page_hashes"] = std::vector<std::string>(names.begin(), names.begin() + looked_up);
  line["output_page_hashes"] = std::vector<std::string>(names.begin() + looked_up, names.end());
  line["finish_reason"] = request.finish_reason;
  line["priority"] = request.priority;
  return write_line(line.dump());
}

Status CaptureWriter::flush() {
  file_.flush();
  return written();
}

Status CaptureWriter::close() {
  file_.close();
  return written();
}

Status CaptureWriter::write_line(const std::string& line) {
  file_ << line << '\n';
  return written();
}

Status CaptureWriter::written() const {
  if (file_) return {};
  return Error{ErrorCode::kIo, "--capture: cannot write " + path_, errno};
}

}  // namespace stemma
