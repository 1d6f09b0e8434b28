#include "model/adapter_pass.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/check.h"
#include "device/row_ops.h"

namespace stemma {

AdapterPass::AdapterPass(const AdapterPassParts& parts)
    : rows_max_(parts.rows_max), threads_(parts.threads) {
  rows_.reserve(static_cast<std::size_t>(rows_max_));
  groups_.reserve(static_cast<std::size_t>(parts.requests_max));  // each has one adapter at most
  row_groups_.resize(static_cast<std::size_t>(rows_max_));
  visits_.reserve(static_cast<std::size_t>(rows_max_));
}

Status AdapterPass::use(std::span<const Adapter> adapters) {
  adapters_ = adapters;
  groups_.clear();
  Widths wanted = widths_;
  for (const Adapter& adapter : adapters) {
    for (const Adapter::Layer& layer : adapter.layers) widen(layer, wanted);
  }
  if (wanted == widths_) return {};
  const std::array parts = {
      RowsWanted{gathered_, rows_max_, wanted.inputs},
      RowsWanted{inner_, rows_max_, wanted.rank},
      RowsWanted{outer_, rows_max_, wanted.outputs},
  };
  STEMMA_ASSIGN_OR_RETURN(scratch_, allocate_rows(parts));
  widths_ = wanted;
  return {};
}

void AdapterPass::widen(const Adapter::Layer& layer, Widths& widths) const {
  const auto note = [&](const PackedWeights& down, const PackedWeights& up) {
    widths.inputs = std::max(widths.inputs, down.k());
    widths.rank = std::max(widths.rank, down.n());
    widths.outputs = std::max(widths.outputs, up.n());
  };
  for (const LowRank& change : layer.changes) note(change.down, change.up);
  for (const auto& expert : layer.experts) {
    for (const LowRank& change : expert) note(change.down, change.up);
  }
  for (std::size_t head = 0; head < layer.latent.key_down.size(); ++head) {
    for (const LatentSide side : {LatentSide::kKey, LatentSide::kValue}) {
      const Change change = of_head(layer.latent, side, head);
      note(change.down, change.up);
    }
  }
}

void AdapterPass::plan(const KvBatch& batch) {
  STEMMA_CHECK_LE(batch.rows(), rows_max_);
  rows_.clear();
  groups_.clear();
  if (batch.adapters.empty()) return;
  STEMMA_CHECK_EQ(batch.adapters.size() + 1, batch.row_indptr.size());
  std::fill_n(row_groups_.begin(), batch.rows(), -1);
  for (std::size_t i = 0; i < adapters_.size(); ++i) {
    const std::size_t first = rows_.size();
    for (std::size_t request = 0; request < batch.adapters.size(); ++request) {
      if (!batch.adapters[request].valid() || batch.adapters[request].index() != i) continue;
      for (std::int32_t row = batch.row_indptr[request]; row < batch.row_indptr[request + 1];
           ++row) {
        rows_.push_back(row);
        row_groups_[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(groups_.size());
      }
    }
    // The vector never grows: spans of it stay valid.
    if (rows_.size() > first) groups_.push_back({&adapters_[i], std::span(rows_).subspan(first)});
  }
}

void AdapterPass::add(std::int64_t layer, Projection projection, const ConstMatrixView& in,
                      const MatrixView& out) {
  for (const Group& group : groups_) {
    const LowRank& change = group.adapter->at(layer, projection);
    if (!change.empty()) add_change(group, {change.down, change.up, change.scale}, in, out);
  }
}

void AdapterPass::add_of_expert(const ExpertVisits& visits, Projection projection,
                                const ConstMatrixView& in, const MatrixView& out) {
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    const LowRank* const change =
        groups_[i].adapter->of_expert_or_null(visits.layer, visits.expert, projection);
    if (change == nullptr || change->empty()) continue;
    const Group group = visits_of(i, visits.rows);
    if (group.rows.empty()) continue;
    add_change(group, {change->down, change->up, change->scale}, in, out);
  }
}

AdapterPass::Group AdapterPass::visits_of(std::size_t group, std::span<const std::int32_t> rows) {
  visits_.clear();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::int32_t of_row = row_groups_[static_cast<std::size_t>(rows[i])];
    if (of_row == static_cast<std::int32_t>(group)) visits_.push_back(static_cast<std::int32_t>(i));
  }
  return {groups_[group].adapter, visits_};
}

void AdapterPass::add_of_head(std::int64_t layer, LatentSide side, std::int64_t head,
                              const ConstMatrixView& in, const MatrixView& out) {
  for (const Group& group : groups_) {
    const LatentChange& latent = group.adapter->layers[static_cast<std::size_t>(layer)].latent;
    if (latent.empty()) continue;
    add_change(group, of_head(latent, side, static_cast<std::size_t>(head)), in, out);
  }
}

AdapterPass::Change AdapterPass::of_head(const LatentChange& latent, LatentSide side,
                                         std::size_t head) {
  if (side == LatentSide::kKey) return {latent.key_down[head], latent.latent_up, latent.scale};
  return {latent.latent_down, latent.value_up[head], latent.scale};
}

void AdapterPass::add_change(const Group& group, const Change& change, const ConstMatrixView& in,
                             const MatrixView& out) {
  const auto rows = static_cast<std::int64_t>(group.rows.size());
  const Rows inner = {inner_.values, change.down.n()};
  const Rows outer = {outer_.values, change.up.n()};
  gemm(rows_of(group, in), change.down, {}, inner.write(rows), threads_);
  for_rows(threads_, rows, [&](std::int64_t row) {
    for (float& value : inner.row(row)) value *= change.scale;
  });
  gemm(inner.read(rows), change.up, {}, outer.write(rows), threads_);
  const auto outputs = static_cast<std::size_t>(out.columns);
  for_rows(threads_, rows, [&](std::int64_t row) {
    float* const own = out.values + group.rows[static_cast<std::size_t>(row)] * out.row_stride;
    add_to({own, outputs}, outer.row(row));
  });
}

// The rows of `in` that are the group's, one behind the other: where they lie, if they do.
ConstMatrixView AdapterPass::rows_of(const Group& group, const ConstMatrixView& in) {
  const auto rows = static_cast<std::int64_t>(group.rows.size());
  const auto row_at = [&](std::int32_t row) { return in.values + row * in.row_stride; };
  if (group.rows.back() - group.rows.front() + 1 == rows) {
    return {row_at(group.rows.front()), rows, in.columns, in.row_stride};
  }
  const Rows gathered = {gathered_.values, in.columns};
  for_rows(threads_, rows, [&](std::int64_t row) {
    std::copy_n(row_at(group.rows[static_cast<std::size_t>(row)]), in.columns,
                gathered.row(row).begin());
  });
  return gathered.read(rows);
}

}  // namespace stemma
