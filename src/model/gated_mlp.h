// Gated MLP: down(activation(gate(x)) · up(x)), the second half of a layer, and of each expert of a
// mixture.
//
// Thread:     called by the thread that owns the ThreadPool; the work is spread over it.
// Memory:     two rows of scratch for each row, the caller's.
// Cost:       6 · hidden · width operations a row.
// Not here:   which rows go to which expert (mixture), where the weights come from (weights).
#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "device/gemm.h"
#include "device/packed_weights.h"
#include "model/activation_rows.h"
#include "model/adapter_pass.h"
#include "model/config.h"
#include "model/rank_rows.h"

namespace stemma {

// A bias that the model does not have is empty. All of it is empty where a layer has none. A rank
// of several has its part of the outputs of each: of `width`, of `hidden`.
struct MlpWeights {
  PackedWeights gate;  // [width, hidden]
  PackedWeights up;    // [width, hidden]
  PackedWeights down;  // [hidden, width]
  std::vector<float> gate_bias;
  std::vector<float> up_bias;
  std::vector<float> down_bias;
};

// Where the inner rows of one call lie: of the widest MLP that uses it.   [rows_max, width]
struct MlpScratch {
  Rows gate;
  Rows up;
};

// How it differs from one layer to another, beside its weights.
struct MlpKind {
  Activation activation = Activation::kSilu;
  LayerAdapters adapters;     // where there are any, `in` has the rows that they are of
  RankRows* peers = nullptr;  // nullptr: the weights are whole
};

// Writes out[row] for each row of `in`. `out` may be `in`.
// REQUIRES: the scratch has room for in.rows rows of weights.down.k() columns, and overlaps
// nothing.
void gated_mlp(const MlpWeights& weights, const ConstMatrixView& in, const MlpScratch& scratch,
               const MatrixView& out, ThreadPool& threads, const MlpKind& kind = {});

}  // namespace stemma
