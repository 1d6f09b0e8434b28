#include "model/coded_matrix.h"

#include "model/float8_matrix.h"
#include "model/int8_matrix.h"
#include "model/packed_int_matrix.h"

namespace stemma {
namespace {

template <typename Matrix, typename Config>
Result<std::unique_ptr<const CodedMatrix>> open_as(const Config& config, const TensorEntry& tensor,
                                                   ReadBeside read_beside) {
  STEMMA_ASSIGN_OR_RETURN(Matrix matrix, Matrix::open(config, tensor, read_beside));
  return std::unique_ptr<const CodedMatrix>(std::make_unique<Matrix>(std::move(matrix)));
}

}  // namespace

Result<std::unique_ptr<const CodedMatrix>> open_coded_matrix(const CodedConfig& config,
                                                             const TensorEntry& tensor,
                                                             ReadBeside read_beside) {
  if (const auto* const float8 = std::get_if<Float8Config>(&config)) {
    if (tensor.dtype == kFloat8Dtype) return open_as<Float8Matrix>(*float8, tensor, read_beside);
  } else if (const auto* const int8 = std::get_if<Int8Config>(&config)) {
    if (tensor.dtype == kInt8Dtype) return open_as<Int8Matrix>(*int8, tensor, read_beside);
  } else if (const auto* const packed = std::get_if<PackedIntConfig>(&config)) {
    if (has_packed_codes(*packed, tensor))
      return open_as<PackedIntMatrix>(*packed, tensor, read_beside);
  }
  return std::unique_ptr<const CodedMatrix>();
}

}  // namespace stemma
