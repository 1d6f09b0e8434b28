// WeightRounding: which matrices of a model are rounded to whole numbers when it is loaded, and
// what that cost.
//
// int8 rounds every matrix to 8 bits for each output. int4 rounds the matrices of attention, MLPs
// and experts to 4 bits for each output and 64 inputs; embeddings, the output matrix and the heads
// of latent rows, whose errors reach every token's logits or every stored row, get 8. Routers of
// mixtures, biases and norms stay as they are: they are few, and a router's error sends a token to
// another expert.
//
// Thread:     made by the thread that loads; immutable afterwards.
// Memory:     a name and two sums for each kind of matrix.
// Cost:       none worth naming.
// Not here:   how a matrix is rounded (device/packed_weights.h).
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/thread_pool.h"
#include "device/packed_weights.h"
#include "stemma/result.h"

namespace stemma {

// kNone: as the files have them. Codes are kept where a format can, and widened where none can;
// kInt8 and kInt4 keep those of their own bits too, and round all others; kWide widens all codes.
enum class WeightRounding : std::uint8_t { kNone, kInt8, kInt4, kWide };

// "auto" (kNone), "int8", "int4", "wide".
Result<WeightRounding> parse_weight_rounding(std::string_view name);

// Puts a format's name behind those of a model that are named already: "int8+int4".
void add_format_name(std::string_view name, std::string& formats);

// What a matrix is for.
enum class MatrixUse : std::uint8_t { kProjection, kEmbedding, kLatentHeads, kRouter };

// The format that such a matrix is rounded to; nothing where it stays as it is. `kept`: that of its
// files' own codes, if they are some that can be kept (coded_matrix.h).
std::optional<WeightFormat> rounded_format(WeightRounding rounding, MatrixUse use,
                                           std::optional<WeightFormat> kept);

// Packs the matrices of one tensor: as they are, or rounded.
class MatrixPacker {
 public:
  MatrixPacker(ThreadPool& pool) : pool_(pool) {}  // NOLINT: a pool alone packs as the file has it
  // Adds to `error`, which must outlive this, what rounding costs.
  MatrixPacker(ThreadPool& pool, WeightFormat format, RoundingError& error)
      : pool_(pool), format_(format), error_or_null_(&error) {}

  Result<PackedWeights> pack(const StoredMatrix& matrix) const;

 private:
  ThreadPool& pool_;
  std::optional<WeightFormat> format_;
  RoundingError* error_or_null_ = nullptr;
};

// What rounding a model's weights cost.
struct RoundingReport {
  std::map<std::string, RoundingError> kinds;  // by kind of matrix: "self_attn.q_proj"
  std::string worst_tensor;                    // that with the largest relative error
  double worst_error = 0;
  std::int64_t stored_bytes = 0;  // of all that was rounded, in the files
  std::int64_t packed_bytes = 0;  // and in memory

  bool empty() const noexcept { return kinds.empty(); }
  // Of the tensor of that name.
  void add(const std::string& tensor, const RoundingError& error);
  // Over all of them.
  RoundingError total() const;
  // {"relative_error", "worst_tensor", "worst_error", "stored_bytes", "packed_bytes", "kinds"}
  nlohmann::ordered_json to_json() const;
};

// Writes it to the log, if anything was rounded. `formats`: of the model's matrices.
void log_rounding(const RoundingReport& report, const std::string& formats);

}  // namespace stemma
