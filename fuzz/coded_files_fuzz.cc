// Any bytes as the file of a model whose matrices are codes: an error of one line, or numbers as
// many as the matrix has, and, where codes can be kept, scales and shifts of all its groups. The
// first byte chooses how the file is said to store them.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/check.h"
#include "base/file.h"
#include "base/math.h"
#include "base/thread_pool.h"
#include "device/packed_weights.h"
#include "model/weight_files.h"

namespace stemma {
namespace {

using Layout = PackedIntConfig::Layout;
const std::array<CodedConfig, 11> kConfigs = {
    PackedIntConfig{Layout::kGptq, 64, true},
    PackedIntConfig{Layout::kGptq, 3, false},
    PackedIntConfig{Layout::kAwq, 64},
    PackedIntConfig{Layout::kAwq, 0},
    PackedIntConfig{.layout = Layout::kCompressedTensors, .group_inputs = 64, .is_symmetric = true},
    PackedIntConfig{.layout = Layout::kCompressedTensors},
    Float8Config{.tile_outputs = 3, .tile_inputs = 5},
    Float8Config{},
    Int8Config{},
    PackedIntConfig{.layout = Layout::kGptq, .bits = 8},
    PackedIntConfig{.layout = Layout::kCompressedTensors, .is_symmetric = true, .bits = 8},
};

class BytesFile final : public ReadableFile {
 public:
  BytesFile(std::string path, std::span<const std::byte> bytes)
      : path_(std::move(path)), bytes_(bytes) {}

  const std::string& path() const override { return path_; }
  std::int64_t size_bytes() const override { return std::ssize(bytes_); }
  Status read_exact(std::int64_t offset_bytes, std::span<std::byte> target) const override {
    STEMMA_CHECK(offset_bytes + std::ssize(target) <= size_bytes(), "reads lie in the file");
    std::copy_n(bytes_.begin() + offset_bytes, target.size(), target.begin());
    return {};
  }

 private:
  std::string path_;
  std::span<const std::byte> bytes_;
};

// One file, model.safetensors.
class OneFile final : public Files {
 public:
  explicit OneFile(std::span<const std::byte> bytes) : bytes_(bytes) {}

  Result<std::unique_ptr<ReadableFile>> open(const std::string& path) override {
    if (!path.ends_with("/model.safetensors")) return Error{ErrorCode::kNotFound, path};
    return std::unique_ptr<ReadableFile>(std::make_unique<BytesFile>(path, bytes_));
  }

 private:
  std::span<const std::byte> bytes_;
};

// What the file's codes stand for is packed, as a model's loader packs it.
Status pack(const WeightFiles& files, const TensorEntry& tensor, std::span<const std::byte> bytes,
            ThreadPool& pool) {
  const auto kept = files.kept_format(tensor.name);
  const auto type = tensor.weight_type();
  if (!type.has_value() || tensor.shape.size() != 2 || bytes.empty()) return {};
  const std::int64_t n = tensor.shape[0];
  const std::int64_t k = tensor.shape[1];
  STEMMA_CHECK_EQ(std::ssize(bytes), n * k * static_cast<std::int64_t>(weight_type_bytes(*type)));
  StoredMatrix stored = {.weights = bytes.data(), .type = *type, .n = n, .k = k};
  const KeptGroups groups = files.kept_groups(tensor.name);
  if (kept == WeightFormat::kInt8) {
    STEMMA_CHECK_EQ(std::ssize(groups.output_scales), n);
    stored.output_scales_or_null = groups.output_scales.data();
  } else if (kept.has_value()) {
    STEMMA_CHECK_EQ(std::ssize(groups.scales), n * ceil_div(k, PackedWeights::kGroupInputs));
    stored.scales_or_null = groups.scales.data();
    if (*kept == WeightFormat::kInt4Shifted) {
      STEMMA_CHECK_EQ(groups.shifts.size(), groups.scales.size());
      stored.shifts_or_null = groups.shifts.data();
    }
  }
  RoundingError error;
  const auto packed =
      PackedWeights::quantise(stored, kept.value_or(WeightFormat::kInt4), pool, error);
  STEMMA_CHECK(packed.ok() || packed.error().code == ErrorCode::kUnsupported,
               "what is finite can be packed");
  return {};
}

void run(std::uint8_t choice, std::span<const std::byte> bytes) {
  static ThreadPool pool(1);
  OneFile file(bytes);
  auto files = WeightFiles::open(file, "d", kConfigs[choice % kConfigs.size()]);
  if (!files.ok()) {
    STEMMA_CHECK(files.error().detail.find('\n') == std::string::npos, "errors are one line");
    return;
  }
  const auto digest = files->read_all(
      pool, [&](const TensorEntry& tensor, std::span<const std::byte> own) -> Status {
        return pack(*files, tensor, own, pool);
      });
  STEMMA_CHECK(digest.ok(), "what was opened can be read");
}

}  // namespace
}  // namespace stemma

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size_bytes) {
  if (size_bytes == 0) return 0;
  stemma::run(bytes[0], std::as_bytes(std::span(bytes + 1, size_bytes - 1)));
  return 0;
}
