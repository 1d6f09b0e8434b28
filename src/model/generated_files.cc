#include "model/generated_files.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/prng.h"
#include "model/config_json.h"
#include "model/weights.h"

namespace stemma {
namespace {

constexpr std::int64_t kWordBytes = 8;

// Four bf16 values: sign and mantissa of each are drawn, and the lowest bit of its exponent.
std::uint64_t weights_at(std::int64_t word) {
  constexpr std::uint64_t kDrawn = 0x80FF'80FF'80FF'80FF;
  constexpr std::uint64_t kExponents = 0x3C00'3C00'3C00'3C00;
  return (mix64(static_cast<std::uint64_t>(word)) & kDrawn) | kExponents;
}

// A text, and behind it generated weights.
class GeneratedFile final : public ReadableFile {
 public:
  GeneratedFile(std::string path, std::string text, std::int64_t weight_bytes)
      : path_(std::move(path)), text_(std::move(text)), weight_bytes_(weight_bytes) {}

  const std::string& path() const override { return path_; }
  std::int64_t size_bytes() const override { return text_bytes() + weight_bytes_; }

  Status read_exact(std::int64_t offset_bytes, std::span<std::byte> target) const override {
    if (offset_bytes + static_cast<std::int64_t>(target.size()) > size_bytes()) {
      return Error{ErrorCode::kCorrupt, path_ + ": ends early"};
    }
    if (offset_bytes < text_bytes()) {
      const auto from = static_cast<std::size_t>(offset_bytes);
      const std::size_t taken = std::min(target.size(), text_.size() - from);
      std::memcpy(target.data(), text_.data() + from, taken);
      target = target.subspan(taken);
      offset_bytes = text_bytes();
    }
    write_weights(offset_bytes - text_bytes(), target);
    return {};
  }

 private:
  std::int64_t text_bytes() const { return static_cast<std::int64_t>(text_.size()); }

  static void write_weights(std::int64_t offset_bytes, std::span<std::byte> target) {
    while (!target.empty()) {
      const std::uint64_t word = weights_at(offset_bytes / kWordBytes);
      const auto skipped = static_cast<std::size_t>(offset_bytes % kWordBytes);
      const std::size_t taken = std::min(target.size(), std::size_t{kWordBytes} - skipped);
      std::memcpy(target.data(), std::as_bytes(std::span(&word, 1)).data() + skipped, taken);
      target = target.subspan(taken);
      offset_bytes += static_cast<std::int64_t>(taken);
    }
  }

  std::string path_;
  std::string text_;
  std::int64_t weight_bytes_;
};

std::int64_t bf16_bytes(const TensorSpec& tensor) {
  std::int64_t bytes = 2;
  for (const std::int64_t extent : tensor.shape) bytes *= extent;
  return bytes;
}

}  // namespace

GeneratedFiles::GeneratedFiles(ModelConfig config) {
  config.weights_dtype = DType::kBF16;
  config_text_ = config_json(config);
  nlohmann::json header = nlohmann::json::object();
  for (const TensorSpec& tensor : needed_tensors(config)) {
    const std::int64_t begin = weight_bytes_;
    weight_bytes_ += bf16_bytes(tensor);
    header[tensor.name] = {
        {"dtype", "BF16"}, {"shape", tensor.shape}, {"data_offsets", {begin, weight_bytes_}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that the tensors begin at a multiple of 8
  const std::uint64_t length = text.size();
  static_assert(std::endian::native == std::endian::little);
  head_.assign(sizeof(length), '\0');
  std::memcpy(head_.data(), &length, sizeof(length));
  head_ += text;
}

Result<std::unique_ptr<ReadableFile>> GeneratedFiles::open(const std::string& path) {
  std::unique_ptr<ReadableFile> file;
  if (path.ends_with("config.json")) {
    file = std::make_unique<GeneratedFile>(path, config_text_, 0);
  } else if (path.ends_with("model.safetensors")) {
    file = std::make_unique<GeneratedFile>(path, head_, weight_bytes_);
  } else {
    return Error{ErrorCode::kNotFound, path + ": no such file"};
  }
  return file;
}

}  // namespace stemma
