// AdapterPass: what adapters add to the projections of one batch, in which requests with different
// adapters and with none mix freely.
//
// The rows of one adapter are computed together, by the GEMM, which gives a row the same bits among
// any others; what comes out is added to each of these rows by itself. Rows without an adapter are
// not touched. So a row's result depends on that row and its adapter alone (I13). Of a mixture's
// expert these are the rows that go there.
//
// Thread:     one batch at a time; the work is spread over the ThreadPool.
// Memory:     scratch for the largest batch, as wide as the widest adapter was; only use allocates.
// Cost:       2 · rank · (inputs + outputs) operations a row and projection that is changed, the
//             rank rounded up to a panel. Adapters of which a batch has no row cost nothing.
// Not here:   loading (adapter), which request has which (engine/).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "device/buffer.h"
#include "device/gemm.h"
#include "model/activation_rows.h"
#include "model/adapter.h"
#include "stemma/kv_batch.h"
#include "stemma/result.h"

namespace stemma {

struct AdapterPassParts {
  std::int64_t rows_max = 0;
  std::int64_t requests_max = 0;
  ThreadPool& threads;
};

// Which part of LatentChange: that of the keys, which queries meet, or that of the values.
enum class LatentSide : std::uint8_t { kKey, kValue };

// The rows of a batch that go to an expert of a layer.
struct ExpertVisits {
  std::int64_t layer = 0;
  std::int64_t expert = 0;
  std::span<const std::int32_t> rows;  // ascending
};

class AdapterPass {
 public:
  // There are no adapters at first.
  explicit AdapterPass(const AdapterPassParts& parts);

  // From now on they are these, by AdapterId; one of no layers is never named. They must lie there
  // until the next call. kOutOfMemory if there is no scratch for one: only the others can be named.
  Status use(std::span<const Adapter> adapters);

  // From now on add is about the rows of `batch`. REQUIRES: it is within the limits, and its
  // adapters are those there are.
  void plan(const KvBatch& batch);

  // Adds to each row of `out` [rows, outputs] what the adapter of its request makes of the same row
  // of `in` [rows, inputs]. REQUIRES: all rows of the batch, in its order, and the outputs that are
  // held here (shard); they do not overlap.
  void add(std::int64_t layer, Projection projection, const ConstMatrixView& in,
           const MatrixView& out);

  // The same of an expert's gate, up or down. REQUIRES: row i of `in` and `out` is of the batch's
  // row visits.rows[i].
  void add_of_expert(const ExpertVisits& visits, Projection projection, const ConstMatrixView& in,
                     const MatrixView& out);

  // The same of one head of latent attention: of its query, in the latent row's columns, or of its
  // value.
  void add_of_head(std::int64_t layer, LatentSide side, std::int64_t head,
                   const ConstMatrixView& in, const MatrixView& out);

 private:
  // Two matrices, one behind the other, and what their product is multiplied by.
  struct Change {
    const PackedWeights& down;
    const PackedWeights& up;
    float scale;
  };
  static Change of_head(const LatentChange& latent, LatentSide side, std::size_t head);
  // The rows that have the same adapter, ascending: of a batch, or of the visits of an expert.
  struct Group {
    const Adapter* adapter = nullptr;
    std::span<const std::int32_t> rows;
  };

  // What the scratch is wide enough for.
  struct Widths {
    std::int64_t inputs = 0;
    std::int64_t rank = 0;
    std::int64_t outputs = 0;
    friend bool operator==(const Widths&, const Widths&) = default;
  };
  void widen(const Adapter::Layer& layer, Widths& widths) const;
  // Of the group with this number, among `rows` of the batch.
  Group visits_of(std::size_t group, std::span<const std::int32_t> rows);
  ConstMatrixView rows_of(const Group& group, const ConstMatrixView& in);
  void add_change(const Group& group, const Change& change, const ConstMatrixView& in,
                  const MatrixView& out);

  std::span<const Adapter> adapters_;
  std::int64_t rows_max_;
  ThreadPool& threads_;
  std::vector<std::int32_t> rows_;  // of the first group, of the second, ...
  std::vector<Group> groups_;
  std::vector<std::int32_t> row_groups_;  // [rows_max]: which of them; -1: none
  std::vector<std::int32_t> visits_;      // of one expert by one group

  Widths widths_;
  Buffer scratch_;
  Rows gathered_;  // [rows_max, inputs]
  Rows inner_;     // [rows_max, rank]
  Rows outer_;     // [rows_max, outputs]
};

// The adapters of a batch in one layer, of all its rows or of those that go to one expert; by
// default there are none.
struct LayerAdapters {
  AdapterPass* pass_or_null = nullptr;
  std::int64_t layer = 0;
  std::optional<ExpertVisits> visits = std::nullopt;

  // The same for what this expert computes.
  LayerAdapters of_expert(std::int64_t expert, std::span<const std::int32_t> rows) const {
    return {pass_or_null, layer, ExpertVisits{layer, expert, rows}};
  }
  void add(Projection projection, const ConstMatrixView& in, const MatrixView& out) const {
    if (pass_or_null == nullptr) return;
    if (visits.has_value()) return pass_or_null->add_of_expert(*visits, projection, in, out);
    pass_or_null->add(layer, projection, in, out);
  }
  void add_of_head(LatentSide side, std::int64_t head, const ConstMatrixView& in,
                   const MatrixView& out) const {
    if (pass_or_null != nullptr) pass_or_null->add_of_head(layer, side, head, in, out);
  }
};

}  // namespace stemma
