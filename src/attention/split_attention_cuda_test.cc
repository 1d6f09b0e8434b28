// Attention on tensor cores: rows of several requests against plain loops in double, and the same
// bits however the work is spread.
#include "attention/split_attention_cuda.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "attention/attention_case.h"
#include "base/float16.h"
#include "base/math.h"
#include "device/cuda_fixture.h"

namespace stemma {
namespace {

constexpr std::int32_t kPartitionKeys = kCudaTileKeys * kCudaPartitionTiles;

// The last `rows` tokens of a request of `keys`.
struct Asker {
  std::int32_t keys = 1;
  std::int32_t rows = 1;
};

struct SplitCase {
  std::string name;
  std::int32_t kv_heads = 2;
  std::int32_t group = 4;  // query heads of each
  std::int32_t head_dim = 64;
  std::int32_t page_size = 16;
  std::vector<Asker> askers;
  AttentionList list = kSinglePairs;
  DType dtype = DType::kBF16;
  std::uint32_t window = INT32_MAX;
  float score_cap = 0;

  std::int32_t query_heads() const { return kv_heads * group; }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(head_dim)); }
};

// Weights are rounded to the operands' type, each by up to half of its last place, and so is the
// output; values are at most 2.
double tolerance(const SplitCase& c) {
  const double last_place = c.dtype == DType::kBF16 ? 0x1p-8 : 0x1p-11;
  return 2 * 2 * last_place;
}

std::vector<std::uint16_t> narrowed(const SplitCase& c, const std::vector<float>& values) {
  std::vector<std::uint16_t> bits;
  for (const float value : values) {
    bits.push_back(c.dtype == DType::kBF16 ? to_bfloat16(value).bits : to_float16(value).bits);
  }
  return bits;
}
double widened(const SplitCase& c, std::uint16_t bits) {
  return c.dtype == DType::kBF16 ? to_float(BFloat16{bits}) : to_float(Float16{bits});
}

// How keys are spread over items: one item has them all, or each partition has an item.
enum class Spread { kWhole, kPartitions };

class SplitAttention : public CudaFixture, public testing::WithParamInterface<SplitCase> {
 protected:
  void SetUp() override {
    CudaFixture::SetUp();
    const auto seed = static_cast<std::uint64_t>(testing::UnitTest::GetInstance()->random_seed());
    for (const Asker& asker : c_.askers) {
      begins_.push_back(static_cast<std::int32_t>(table_.size()));
      for (int i = 0; i < ceil_div(asker.keys, c_.page_size); ++i) {
        table_.push_back(static_cast<std::int32_t>(table_.size()));
      }
      rows_ += asker.rows;
    }
    Prng prng(seed);
    for (std::size_t i = table_.size(); i > 1; --i) {
      std::swap(table_[i - 1],
                table_[static_cast<std::size_t>(prng.below(static_cast<std::int64_t>(i)))]);
    }
    const std::int64_t elements =
        static_cast<std::int64_t>(table_.size()) * c_.page_size * c_.kv_heads * c_.head_dim;
    k_ = narrowed(c_, random_values(3 * seed + 1, elements));
    v_ = narrowed(c_, random_values(3 * seed + 2, elements));
    q_ = narrowed(c_, random_values(3 * seed + 3, rows_ * c_.query_heads() * c_.head_dim));
  }

  std::vector<AttentionRow> rows_of(Spread spread) const {
    std::vector<AttentionRow> rows;
    std::int32_t sums = 0;
    for (const Asker& asker : c_.askers) {
      for (std::int32_t i = 0; i < asker.rows; ++i) {
        const std::int32_t partitions = ceil_div(asker.keys, kPartitionKeys);
        rows.push_back({.position = asker.keys - asker.rows + i,
                        .first_sum = sums,
                        .sums = spread == Spread::kWhole ? 1 : partitions});
        sums += partitions;
      }
    }
    return rows;
  }

  std::vector<AttentionItem> items_of(Spread spread) const {
    std::vector<AttentionItem> items;
    std::int32_t row = 0;
    for (std::size_t r = 0; r < c_.askers.size(); ++r) {
      const Asker& asker = c_.askers[r];
      AttentionItem item = {.table_begin = begins_[r],
                            .keys = asker.keys,
                            .first_row = row,
                            .pairs = asker.rows * c_.group};
      const std::int32_t tiles = ceil_div(asker.keys, kCudaTileKeys);
      const std::int32_t step = spread == Spread::kWhole ? tiles : kCudaPartitionTiles;
      for (; item.first_tile < tiles; item.first_tile = item.end_tile) {
        item.end_tile = std::min(item.first_tile + step, tiles);
        items.push_back(item);
      }
      row += asker.rows;
    }
    return items;
  }

  // What a plan would upload.
  std::vector<std::byte> image(Spread spread) const {
    AttentionHeader header;
    std::vector<std::byte> bytes(sizeof(header));
    const auto append = [&](const auto& values) {
      bytes.resize(round_up(bytes.size(), std::size_t{16}));
      const std::size_t at = bytes.size();
      bytes.resize(at + values.size() * sizeof(values[0]));
      if (!values.empty()) {
        std::memcpy(&bytes[at], values.data(), values.size() * sizeof(values[0]));
      }
      return static_cast<std::int32_t>(at / 16);
    };
    const auto items = items_of(spread);
    const auto rows = rows_of(spread);
    std::vector<std::int32_t> merged;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (rows[i].sums > 1) merged.push_back(static_cast<std::int32_t>(i));
    }
    header.items[c_.list] = static_cast<std::int32_t>(items.size());
    header.merged_rows = static_cast<std::int32_t>(merged.size());
    header.items_at[c_.list] = append(items);
    header.rows_at = append(rows);
    header.merged_rows_at = append(merged);
    header.table_at = append(table_);
    std::memcpy(&bytes[0], &header, sizeof(header));
    return bytes;
  }

  std::int64_t sums() const {
    const AttentionRow last = rows_of(Spread::kPartitions).back();
    return last.first_sum + last.sums;
  }

  std::vector<std::uint16_t> attend(Spread spread) {
    const auto outputs = static_cast<std::size_t>(rows_ * c_.query_heads() * c_.head_dim);
    const auto pairs = static_cast<std::size_t>(sums() * c_.query_heads());
    const CudaMemory work = upload(image(spread));
    const CudaMemory k = upload(k_);
    const CudaMemory v = upload(v_);
    const CudaMemory q = upload(q_);
    const CudaMemory out = allocate<std::uint16_t>(outputs);
    const CudaMemory values = allocate<float>(pairs * static_cast<std::size_t>(c_.head_dim));
    const CudaMemory weights = allocate<float>(2 * pairs);
    AttentionParams params;
    params.image = work.bytes();
    params.k = k.bytes();
    params.v = v.bytes();
    params.head_stride = c_.head_dim * 2;
    params.token_stride = c_.kv_heads * params.head_stride;
    params.page_stride = c_.page_size * params.token_stride;
    params.kv_dtype = params.row_dtype = c_.dtype;
    params.page_size = c_.page_size;
    params.query_heads = c_.query_heads();
    params.kv_heads = c_.kv_heads;
    params.head_dim = params.value_dim = c_.head_dim;
    params.window = c_.window;
    params.scale = c_.scale();
    params.score_cap = c_.score_cap;
    params.q = q.bytes();
    params.out = out.bytes();
    params.sum_values = values.as<float>();
    params.sum_weights = weights.as<float>();
    EXPECT_TRUE(split_attention(stream(), params, c_.list, 3).ok());
    EXPECT_TRUE(merge_sums(stream(), params, rows_).ok());
    return download<std::uint16_t>(out.bytes(), outputs);
  }

  // Element `i` of a key's row.
  std::size_t place(std::size_t request, std::int32_t key, std::int32_t kv_head,
                    std::int32_t i) const {
    const std::int32_t page =
        table_[static_cast<std::size_t>(begins_[request] + key / c_.page_size)];
    const std::int32_t slot = page * c_.page_size + key % c_.page_size;
    return static_cast<std::size_t>((slot * c_.kv_heads + kv_head) * c_.head_dim + i);
  }

  // In double: the output of a row and a query head.
  std::vector<double> expected(std::size_t request, std::int32_t row, std::int32_t position,
                               std::int32_t head) const {
    const std::int64_t first =
        c_.window == INT32_MAX ? 0
                               : std::max<std::int64_t>(0, position + 1 - std::int64_t{c_.window});
    double total = 0;
    std::vector<double> sums(static_cast<std::size_t>(c_.head_dim), 0.0);
    for (auto key = static_cast<std::int32_t>(first); key <= position; ++key) {
      double score = 0;
      for (std::int32_t i = 0; i < c_.head_dim; ++i) {
        score +=
            widened(
                c_,
                q_[static_cast<std::size_t>((row * c_.query_heads() + head) * c_.head_dim + i)]) *
            widened(c_, k_[place(request, key, head / c_.group, i)]);
      }
      score *= c_.scale();
      if (c_.score_cap > 0) score = c_.score_cap * std::tanh(score / c_.score_cap);
      const double weight = std::exp(score);
      total += weight;
      for (std::int32_t i = 0; i < c_.head_dim; ++i) {
        sums[static_cast<std::size_t>(i)] +=
            weight * widened(c_, v_[place(request, key, head / c_.group, i)]);
      }
    }
    for (double& sum : sums) sum /= total;
    return sums;
  }

  SplitCase c_ = GetParam();
  std::int32_t rows_ = 0;

 private:
  std::vector<std::uint16_t> k_, v_, q_;
  std::vector<std::int32_t> table_;
  std::vector<std::int32_t> begins_;  // of each request, in the table
};

TEST_P(SplitAttention, IsTheSoftmaxOfTheKeysThatARowSees) {
  const auto actual = attend(Spread::kWhole);
  std::int32_t row = 0;
  for (std::size_t request = 0; request < c_.askers.size(); ++request) {
    const Asker& asker = c_.askers[request];
    for (std::int32_t i = 0; i < asker.rows; ++i, ++row) {
      for (std::int32_t head = 0; head < c_.query_heads(); ++head) {
        const auto wanted = expected(request, row, asker.keys - asker.rows + i, head);
        const auto first = static_cast<std::size_t>((row * c_.query_heads() + head) * c_.head_dim);
        for (std::size_t at = 0; at < wanted.size(); ++at) {
          ASSERT_NEAR(widened(c_, actual[first + at]), wanted[at], tolerance(c_))
              << "row " << row << ", head " << head << ", column " << at;
        }
      }
    }
  }
}

TEST_P(SplitAttention, HasTheSameBitsHoweverItsPartitionsAreSpread) {
  EXPECT_EQ(attend(Spread::kPartitions), attend(Spread::kWhole));
}

std::vector<SplitCase> split_cases() {
  const std::vector<Asker> ragged = {{1}, {63}, {64}, {65}, {600}};
  const std::vector<Asker> chunks = {{9, 9}, {70, 5}, {530, 3}};
  return {
      {.name = "ragged_contexts", .askers = ragged},
      {.name = "page_of_one", .page_size = 1, .askers = {{130}, {7}}},
      {.name = "page_of_three", .page_size = 3, .askers = {{130}, {7}}},
      {.name = "page_of_64", .page_size = 64, .askers = {{130}, {7}}},
      {.name = "f16", .askers = {{130}, {7}}, .dtype = DType::kF16},
      {.name = "one_query_head_each", .group = 1, .askers = {{130}, {7}}},
      {.name = "sixteen_query_heads_each", .kv_heads = 1, .group = 16, .askers = {{130}, {7}}},
      {.name = "head_dim_80", .kv_heads = 1, .head_dim = 80, .askers = {{130}, {7}}},
      {.name = "head_dim_128", .kv_heads = 1, .head_dim = 128, .askers = {{130}, {7}}},
      {.name = "head_dim_256", .kv_heads = 1, .group = 2, .head_dim = 256, .askers = {{130}, {7}}},
      {.name = "window", .askers = {{600}, {20}}, .window = 50},
      {.name = "capped_scores", .askers = {{130}, {7}}, .score_cap = 5},
      {.name = "chunks", .askers = chunks, .list = kSharedPairs},
      {.name = "chunks_with_a_window", .askers = chunks, .list = kSharedPairs, .window = 6},
      {.name = "chunks_of_f16_and_head_dim_128",
       .kv_heads = 1,
       .head_dim = 128,
       .askers = {{70, 5}},
       .list = kSharedPairs,
       .dtype = DType::kF16},
      {.name = "chunks_of_head_dim_256",
       .kv_heads = 1,
       .group = 2,
       .head_dim = 256,
       .askers = {{70, 5}},
       .list = kSharedPairs},
  };
}

INSTANTIATE_TEST_SUITE_P(OnTensorCores, SplitAttention, testing::ValuesIn(split_cases()),
                         [](const auto& instance) { return instance.param.name; });

class SplitAttentionRefuses : public CudaFixture {};

TEST_F(SplitAttentionRefuses, RowsThatThereIsNoKernelFor) {
  AttentionParams params;
  params.head_dim = params.value_dim = 264;
  EXPECT_EQ(split_attention(stream(), params, kSinglePairs, 1).error().code,
            ErrorCode::kUnsupported);
  params.head_dim = params.value_dim = 72;
  params.kv_dtype = DType::kInt8;
  EXPECT_EQ(split_attention(stream(), params, kSinglePairs, 1).error().code,
            ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace stemma
