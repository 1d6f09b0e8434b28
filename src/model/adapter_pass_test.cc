// What adapters add to the rows of a batch: against the products in double precision, whatever rows
// each of them has, and equal bit for bit to what each row gets alone (I13).
#include "model/adapter_pass.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/temp_directory.h"
#include "model/random_adapter.h"
#include "model/runner_trial.h"

namespace stemma {
namespace {

constexpr std::int64_t kInputs = 64;
constexpr std::int64_t kRank = 5;
constexpr std::int64_t kRowsMax = 40;

// Who has how many rows: of adapter 0 or 1, or of none (-1).
using Shares = std::vector<std::pair<int, std::int64_t>>;

class AdapterPassTest : public testing::Test {
 protected:
  void SetUp() override {
    PosixFiles files;
    for (std::uint64_t i = 0; i < 2; ++i) {
      TempDirectory directory;
      const RandomAdapterOptions options = {.config = tiny_model_config("llama2"),
                                            .targets = {i == 0 ? "q_proj" : "v_proj", "up_proj"},
                                            .rank = kRank,
                                            .alpha = 15,
                                            .alphas = {{"up_proj", i == 0 ? 15 : 20}},
                                            .seed = i + 1};
      ASSERT_TRUE(write_random_adapter(directory.path(), options).ok());
      auto adapter = load_adapter(files, {"a", directory.path()}, options.config, threads_);
      ASSERT_TRUE(adapter.ok()) << to_string(adapter.error());
      adapters_.push_back(std::move(adapter).value());
    }
    ASSERT_TRUE(pass_.use(adapters_).ok());
  }

  void plan(const Shares& shares) {
    indptr_.assign(1, 0);
    ids_.clear();
    for (const auto& [adapter, rows] : shares) {
      indptr_.push_back(indptr_.back() + static_cast<std::int32_t>(rows));
      ids_.push_back(adapter < 0 ? AdapterId() : AdapterId(adapter));
    }
    rows_ = indptr_.back();
    tokens_.assign(static_cast<std::size_t>(rows_), 0);
    KvBatch batch;
    batch.tokens = tokens_;
    batch.row_indptr = indptr_;
    batch.adapters = ids_;
    pass_.plan(batch);
  }

  // Row r of the input, the same whatever else is in the batch.
  static std::vector<float> input_row(std::int64_t row) {
    return random_tensor("x" + std::to_string(row), {1, kInputs}, 7);
  }

  // What rows that were 1 are after the planned batch; row r of the batch has the input of
  // first_row + r.
  std::vector<std::vector<float>> added(Projection projection, std::int64_t outputs,
                                        std::int64_t first_row = 0) {
    std::vector<float> in;
    for (std::int64_t row = 0; row < rows_; ++row) {
      const std::vector<float> values = input_row(first_row + row);
      in.insert(in.end(), values.begin(), values.end());
    }
    const std::int64_t stride = outputs + 3;  // what lies between rows is left alone
    std::vector<float> out(static_cast<std::size_t>(rows_ * stride), 1.0f);
    pass_.add(1, projection, {in.data(), rows_, kInputs, kInputs},
              {out.data(), rows_, outputs, stride});
    std::vector<std::vector<float>> found;
    for (std::int64_t row = 0; row < rows_; ++row) {
      const auto begin = out.begin() + row * stride;
      found.emplace_back(begin, begin + outputs);
      EXPECT_TRUE(std::all_of(begin + outputs, begin + stride, [](float x) { return x == 1.0f; }));
    }
    return found;
  }

  // 1 + scale · B (A x) in double precision.
  std::vector<double> expected(int adapter, Projection projection, std::int64_t row) const {
    const LowRank& change = adapters_[static_cast<std::size_t>(adapter)].at(1, projection);
    const std::vector<float> x = input_row(row);
    std::vector<double> inner;
    for (std::int64_t r = 0; r < kRank; ++r) inner.push_back(dot(change.down, r, x));
    const double scale = adapter == 1 && projection == Projection::kUp ? 4 : 3;
    std::vector<double> sums;
    for (std::int64_t i = 0; i < change.up.n(); ++i) {
      sums.push_back(1 + scale * dot(change.up, i, inner));
    }
    return sums;
  }

  template <typename Values>
  static double dot(const PackedWeights& matrix, std::int64_t row, const Values& values) {
    std::vector<float> weights(static_cast<std::size_t>(matrix.k()));
    matrix.unpack_row(row, weights);
    double sum = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      sum += static_cast<double>(weights[i]) * static_cast<double>(values[i]);
    }
    return sum;
  }

  void expect_near(int adapter, Projection projection, const std::vector<float>& got,
                   std::int64_t row) const {
    const std::vector<double> wanted = expected(adapter, projection, row);
    ASSERT_EQ(got.size(), wanted.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(got[i]), wanted[i], 3e-5) << "row " << row;
    }
  }

  ThreadPool threads_{2};
  std::vector<Adapter> adapters_;
  AdapterPass pass_{{.rows_max = kRowsMax, .requests_max = 8, .threads = threads_}};
  std::vector<std::int32_t> indptr_;
  std::vector<AdapterId> ids_;
  std::vector<TokenId> tokens_;
  std::int64_t rows_ = 0;
};

TEST_F(AdapterPassTest, EachRowGetsWhatItsOwnAdapterMakesOfIt) {
  for (const Shares& shares : {Shares{{0, 1}}, Shares{{1, 13}}, Shares{{0, 3}, {-1, 2}, {1, 4}},
                               Shares{{1, 1}, {0, 17}, {1, 5}, {-1, 1}, {0, 1}}}) {
    plan(shares);
    const auto got = added(Projection::kUp, 160);
    std::size_t row = 0;
    for (const auto& [adapter, rows] : shares) {
      for (std::int64_t i = 0; i < rows; ++i, ++row) {
        if (adapter >= 0) {
          expect_near(adapter, Projection::kUp, got[row], static_cast<std::int64_t>(row));
        } else {
          EXPECT_EQ(got[row], std::vector<float>(160, 1.0f));
        }
      }
    }
  }
}

TEST_F(AdapterPassTest, WhatAnAdapterDoesNotChangeStaysAsItIs) {
  plan({{0, 2}, {1, 2}});
  const auto query = added(Projection::kQuery, 64);  // of adapter 0 alone
  expect_near(0, Projection::kQuery, query[1], 1);
  EXPECT_EQ(query[2], std::vector<float>(64, 1.0f));
  EXPECT_EQ(added(Projection::kOutput, 64)[0], std::vector<float>(64, 1.0f));
}

TEST_F(AdapterPassTest, WithoutAdaptersInABatchNothingIsAdded) {
  plan({{-1, 3}});
  EXPECT_EQ(added(Projection::kUp, 160)[2], std::vector<float>(160, 1.0f));
  KvBatch nobodys;
  nobodys.tokens = tokens_;
  nobodys.row_indptr = indptr_;
  pass_.plan(nobodys);
  EXPECT_EQ(added(Projection::kUp, 160)[2], std::vector<float>(160, 1.0f));
}

// Rows of an expert of a mixture: few of the batch, each with the adapter that it has there.
class ExpertVisitsTest : public AdapterPassTest {
 protected:
  // Both adapters change expert 1 in layer 1 as they change `up` of the dense layer.
  void SetUp() override {
    AdapterPassTest::SetUp();
    for (Adapter& adapter : adapters_) {
      auto& changes = adapter.layers[1].changes;
      adapter.layers[1].experts.resize(2);
      adapter.layers[1].experts[1][kUp] = std::exchange(changes[kUp], {});
    }
    ASSERT_TRUE(pass_.use(adapters_).ok());
  }

  // What rows that were 1 are after these of the batch, which have inputs of their numbers.
  std::vector<std::vector<float>> added_to(std::int64_t expert,
                                           const std::vector<std::int32_t>& rows,
                                           std::int32_t first_input = 0) {
    std::vector<float> in;
    for (const std::int32_t row : rows) {
      const std::vector<float> values = input_row(first_input + row);
      in.insert(in.end(), values.begin(), values.end());
    }
    const std::int64_t count = std::ssize(rows);
    std::vector<float> out(static_cast<std::size_t>(count * kOutputs), 1.0f);
    const LayerAdapters adapters = {&pass_, 1};
    adapters.of_expert(expert, rows)
        .add(Projection::kUp, {in.data(), count, kInputs, kInputs},
             {out.data(), count, kOutputs, kOutputs});
    std::vector<std::vector<float>> found;
    for (auto begin = out.begin(); begin != out.end(); begin += kOutputs) {
      found.emplace_back(begin, begin + kOutputs);
    }
    return found;
  }

  // As expected, of the expert.
  void expect_near_of_expert(int adapter, const std::vector<float>& got, std::int64_t row) {
    auto& layer = adapters_[static_cast<std::size_t>(adapter)].layers[1];
    std::swap(layer.changes[kUp], layer.experts[1][kUp]);
    expect_near(adapter, Projection::kUp, got, row);
    std::swap(layer.changes[kUp], layer.experts[1][kUp]);
  }

  static constexpr std::int64_t kOutputs = 160;
  static constexpr auto kUp = static_cast<std::size_t>(Projection::kUp);
  const std::vector<float> untouched_ = std::vector<float>(kOutputs, 1.0f);
};

TEST_F(ExpertVisitsTest, EachRowGetsWhatItsOwnAdapterMakesOfIt) {
  plan({{1, 3}, {0, 6}, {-1, 2}, {0, 4}, {1, 2}});
  const std::vector<std::int32_t> rows = {1, 2, 4, 9, 10, 12, 15, 16};
  const auto got = added_to(1, rows);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    SCOPED_TRACE(rows[i]);
    if (rows[i] == 9 || rows[i] == 10) {
      EXPECT_EQ(got[i], untouched_);
      continue;
    }
    const bool first = (rows[i] > 2 && rows[i] < 9) || (rows[i] > 10 && rows[i] < 15);
    expect_near_of_expert(first ? 0 : 1, got[i], rows[i]);
  }
}

TEST_F(ExpertVisitsTest, OtherExpertsAndLayersStayAsTheyAre) {
  plan({{0, 2}, {1, 2}});
  EXPECT_EQ(added_to(0, {0, 3})[1], untouched_);
  EXPECT_EQ(added(Projection::kUp, kOutputs)[1], untouched_) << "what all rows pass";
}

TEST_F(ExpertVisitsTest, ARowHasTheBitsThatItHasAlone) {
  plan({{1, 3}, {0, 6}, {-1, 2}, {0, 11}, {1, 2}});
  const std::vector<std::int32_t> rows = {0, 3, 4, 6, 9, 11, 13, 21, 23};
  const auto together = added_to(1, rows);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    SCOPED_TRACE(rows[i]);
    plan({{rows[i] < 3 || rows[i] > 21 ? 1 : rows[i] == 9 ? -1 : 0, 1}});
    EXPECT_EQ(added_to(1, {0}, rows[i])[0], together[i]);
  }
}

TEST_F(AdapterPassTest, ARowHasTheBitsThatItHasAlone) {
  plan({{1, 3}, {0, 6}, {-1, 2}, {0, 11}, {1, 2}, {0, 1}});
  const auto together = added(Projection::kUp, 160);
  for (const std::size_t row : {3u, 8u, 11u, 21u, 24u}) {
    plan({{0, 1}});
    EXPECT_EQ(added(Projection::kUp, 160, static_cast<std::int64_t>(row))[0], together[row]);
  }
  plan({{1, 1}});
  EXPECT_EQ(added(Projection::kUp, 160, 23)[0], together[23]);
}

}  // namespace
}  // namespace stemma
