#include "model/gated_mlp.h"

#include <array>

#include "base/check.h"
#include "device/row_ops.h"

namespace stemma {

void gated_mlp(const MlpWeights& weights, const ConstMatrixView& in, const MlpScratch& scratch,
               const MatrixView& out, ThreadPool& threads, const MlpKind& kind) {
  const std::int64_t width = weights.down.k();
  STEMMA_CHECK(width <= scratch.gate.columns && width <= scratch.up.columns,
               "the scratch is as wide as the MLP");
  const Rows gate = {scratch.gate.values, weights.gate.n()};
  const Rows up = {scratch.up.values, weights.up.n()};
  const std::array outputs = {GemmOutput{weights.gate, weights.gate_bias, gate.write(in.rows)},
                              GemmOutput{weights.up, weights.up_bias, up.write(in.rows)}};
  gemm_all(in, outputs, threads);
  kind.adapters.add(Projection::kGate, in, gate.write(in.rows));
  kind.adapters.add(Projection::kUp, in, up.write(in.rows));
  const auto multiply = kind.activation == Activation::kSilu ? silu_multiply : gelu_multiply;
  for_rows(threads, in.rows,
           [&](std::int64_t row) { multiply(gate.row(row), up.row(row), gate.row(row)); });
  const Rows inner = {kind.peers == nullptr ? gate.values : up.values, width};
  if (kind.peers != nullptr) kind.peers->gather(gate, in.rows, inner.write(in.rows));
  multiply_cut(inner.read(in.rows),
               {weights.down, weights.down_bias, kind.adapters, Projection::kDown}, out, threads,
               kind.peers);
}

}  // namespace stemma
