#include "model/mixture.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/check.h"
#include "device/gemm.h"

namespace stemma {

Result<std::unique_ptr<Mixture>> Mixture::create(const MixtureParts& parts) {
  auto mixture = std::make_unique<Mixture>(Key{}, parts);
  STEMMA_RETURN_IF_ERROR(mixture->allocate_scratch());
  return mixture;
}

Mixture::Mixture(Key, const MixtureParts& parts)
    : config_(parts.config),
      hidden_(parts.hidden),
      rows_max_(parts.rows_max),
      threads_(parts.threads),
      peers_(parts.peers) {
  STEMMA_CHECK(config_.experts > 0, "the model has mixtures");
}

Status Mixture::allocate_scratch() {
  const std::array parts = {
      RowsWanted{scores_, rows_max_, config_.experts},
      RowsWanted{keys_, rows_max_, config_.experts},
      RowsWanted{group_keys_, rows_max_, config_.groups},
      RowsWanted{gathered_, rows_max_, hidden_},
      RowsWanted{sum_, rows_max_, hidden_},
  };
  STEMMA_ASSIGN_OR_RETURN(scratch_, allocate_rows(parts));
  ranked_.resize(static_cast<std::size_t>(rows_max_ * config_.experts));
  shares_.resize(static_cast<std::size_t>(rows_max_ * config_.experts_per_token));
  visit_rows_.resize(shares_.size());
  visit_weights_.resize(shares_.size());
  first_visit_.resize(static_cast<std::size_t>(config_.experts) + 1);
  return {};
}

const Rows& Mixture::compute(const MixtureWeights& weights, const Rows& in, std::int64_t rows,
                             const MlpScratch& scratch, const LayerAdapters& adapters) {
  STEMMA_CHECK_LE(rows, rows_max_);
  choose(weights, in, rows, adapters);
  sort_by_expert(rows);
  if (weights.shared.gate.n() > 0) {
    gated_mlp(weights.shared, in.read(rows), scratch, sum_.write(rows), threads_,
              {.adapters = adapters, .peers = peers_});
  } else {
    std::fill_n(sum_.values, rows * hidden_, 0.0F);
  }
  for (std::size_t expert = 0; expert < weights.experts.size(); ++expert) {
    const Visits visits = visits_of(expert);
    if (visits.rows.empty()) continue;
    add_expert(weights.experts[expert], visits, in, scratch,
               adapters.of_expert(static_cast<std::int64_t>(expert), visits.rows));
  }
  return sum_;
}

void Mixture::choose(const MixtureWeights& weights, const Rows& in, std::int64_t rows,
                     const LayerAdapters& adapters) {
  gemm(in.read(rows), weights.router, {}, scores_.write(rows), threads_);
  adapters.add(Projection::kRouter, in.read(rows), scores_.write(rows));
  const auto experts = static_cast<std::size_t>(config_.experts);
  const auto chosen = static_cast<std::size_t>(config_.experts_per_token);
  for_rows(threads_, rows, [&](std::int64_t row) {
    const auto r = static_cast<std::size_t>(row);
    const ChoiceRow choice = {scores_.row(row), keys_.row(row), group_keys_.row(row),
                              std::span(ranked_).subspan(r * experts, experts)};
    choose_experts(config_, weights.correction, choice,
                   std::span(shares_).subspan(r * chosen, chosen));
  });
}

// The rows of each expert, ascending.
void Mixture::sort_by_expert(std::int64_t rows) {
  const auto chosen = static_cast<std::size_t>(config_.experts_per_token);
  const auto shares = std::span(shares_).first(static_cast<std::size_t>(rows) * chosen);
  std::fill(first_visit_.begin(), first_visit_.end(), 0);
  for (const ExpertShare& share : shares) {
    ++first_visit_[static_cast<std::size_t>(share.expert)];
  }
  for (std::size_t expert = 1; expert < first_visit_.size(); ++expert) {
    first_visit_[expert] += first_visit_[expert - 1];
  }
  // Now each is where its expert's rows end; filling them from behind brings it to where they
  // begin.
  for (std::size_t i = shares.size(); i > 0; --i) {
    const ExpertShare& share = shares[i - 1];
    const auto place =
        static_cast<std::size_t>(--first_visit_[static_cast<std::size_t>(share.expert)]);
    visit_rows_[place] = static_cast<std::int32_t>((i - 1) / chosen);
    visit_weights_[place] = share.weight;
  }
}

Mixture::Visits Mixture::visits_of(std::size_t expert) const {
  const auto first = static_cast<std::size_t>(first_visit_[expert]);
  const std::size_t count = static_cast<std::size_t>(first_visit_[expert + 1]) - first;
  return {std::span(visit_rows_).subspan(first, count),
          std::span(visit_weights_).subspan(first, count)};
}

void Mixture::add_expert(const MlpWeights& expert, const Visits& visits, const Rows& in,
                         const MlpScratch& scratch, const LayerAdapters& adapters) {
  const auto rows = static_cast<std::int64_t>(visits.rows.size());
  for_rows(threads_, rows, [&](std::int64_t i) {
    const std::span<const float> row = in.row(visits.rows[static_cast<std::size_t>(i)]);
    std::copy(row.begin(), row.end(), gathered_.row(i).begin());
  });
  gated_mlp(expert, gathered_.read(rows), scratch, gathered_.write(rows), threads_,
            {.adapters = adapters, .peers = peers_});
  for_rows(threads_, rows, [&](std::int64_t i) {
    const auto visit = static_cast<std::size_t>(i);
    const std::span<const float> said = gathered_.row(i);
    const std::span<float> sum = sum_.row(visits.rows[visit]);
    for (std::size_t column = 0; column < sum.size(); ++column) {
      sum[column] += visits.weights[visit] * said[column];
    }
  });
}

}  // namespace stemma
