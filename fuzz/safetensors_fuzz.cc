// Any bytes as a safetensors file and as an index of shards: an error of one line, or tensors that
// lie in the file.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/check.h"
#include "model/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size_bytes) {
  const auto file_bytes = static_cast<std::int64_t>(size_bytes);
  const auto header = stemma::parse_safetensors_header(std::as_bytes(std::span(bytes, size_bytes)),
                                                       file_bytes, "f");
  if (header.ok()) {
    std::int64_t end_bytes = header->header_bytes;
    for (const stemma::TensorEntry& tensor : header->tensors) {
      STEMMA_CHECK_EQ(tensor.offset_bytes, end_bytes);
      end_bytes += tensor.size_bytes;
    }
    STEMMA_CHECK_EQ(end_bytes, file_bytes);
  } else {
    STEMMA_CHECK(header.error().detail.find('\n') == std::string::npos, "errors are one line");
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes), size_bytes);
  const auto index = stemma::parse_safetensors_index(text, "f");
  if (index.ok()) {
    for (const auto& [tensor, file] : *index) {
      STEMMA_CHECK(file.find('/') == std::string::npos, "shards lie beside their index");
    }
  }
  return 0;
}
