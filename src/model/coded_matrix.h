// CodedMatrix: a matrix of which a file holds codes of fewer bits, and what these stand for.
//
// Thread:     immutable; widen spreads over a pool.
// Memory:     that of its kind; of the tensors beside codes it borrows the bytes.
// Cost:       that of its kind.
// Not here:   the kinds (float8_matrix, int8_matrix, packed_int_matrix), reading files
//             (weight_files), how a model's files are coded (coded_config).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/float16.h"
#include "base/function_ref.h"
#include "base/thread_pool.h"
#include "device/weight_type.h"
#include "model/coded_config.h"
#include "model/safetensors.h"
#include "stemma/result.h"

namespace stemma {

// A tensor that says what the codes of another one stand for: scales, zero points. Borrows both.
struct BesideTensor {
  const TensorEntry* entry = nullptr;  // nullptr: there is none of that name
  std::span<const std::byte> bytes;

  bool exists() const noexcept { return entry != nullptr; }
};

// Reads the tensor of that name, if there is one.
using ReadBeside = FunctionRef<Result<BesideTensor>(const std::string& name)>;

// What belongs to the codes of a matrix that are kept: of 4 bits to every group of
// PackedWeights::kGroupInputs, [outputs, groups], of 8 to every output.
struct KeptGroups {
  std::vector<BFloat16> scales = {};
  std::vector<std::int8_t> shifts = {};  // empty: there are none
  std::vector<float> output_scales = {};
};

class CodedMatrix {
 public:
  virtual ~CodedMatrix() = default;

  // What the matrix is called where files hold numbers: "...up_proj.weight".
  virtual std::string name() const = 0;
  virtual std::int64_t outputs() const = 0;
  virtual std::int64_t inputs() const = 0;
  // Of the numbers.
  virtual WeightType type() const = 0;

  // Writes what `codes` stand for. REQUIRES: they are all of the tensor; `values` has room for
  // outputs × inputs numbers and is aligned for them.
  virtual void widen(std::span<const std::byte> codes, std::span<std::byte> values,
                     ThreadPool& pool) const = 0;

  // The format that can keep the codes: an output's groups of PackedWeights::kGroupInputs, or the
  // output, share a scale, and a shift if it has those. Nothing where there is none.
  virtual std::optional<WeightFormat> kept_format() const { return std::nullopt; }
  // What belongs to the codes then. REQUIRES: kept_format().
  virtual KeptGroups kept_groups() const { return {}; }
};

// What `tensor` holds codes of, or nullptr where it holds none. Tensors beside it are read by
// `read_beside`, whose answers must outlive the matrix. Errors of the tensor are the reason alone.
Result<std::unique_ptr<const CodedMatrix>> open_coded_matrix(const CodedConfig& config,
                                                             const TensorEntry& tensor,
                                                             ReadBeside read_beside);

}  // namespace stemma
