#include "attention/split_attention_cuda.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "attention/attention_case.h"
#include "base/float16.h"
#include "device/cuda_fixture.h"

namespace stemma {
namespace {

constexpr int kKeys = 600;  // more than a partition, no whole tile
constexpr int kPageSize = 3;
constexpr int kPages = 203;
constexpr int kDim = 64;
constexpr int kKvHeads = 2;
constexpr int kQueryHeads = 8;
constexpr float kScale = 0.125f;
// Weights and outputs are rounded to bf16, outputs of magnitude 1 by up to 2^-9 each.
constexpr double kTolerance = 0.008;

std::vector<BFloat16> narrowed(const std::vector<float>& values) {
  std::vector<BFloat16> result;
  for (const float value : values) result.push_back(to_bfloat16(value));
  return result;
}

// One row whose pages lie scattered in a pool.
class SplitAttention : public CudaFixture {
 protected:
  void SetUp() override {
    CudaFixture::SetUp();
    const auto seed = static_cast<std::uint64_t>(testing::UnitTest::GetInstance()->random_seed());
    const std::int64_t elements = std::int64_t{kPages} * kPageSize * kKvHeads * kDim;
    k_ = narrowed(random_values(3 * seed + 1, elements));
    v_ = narrowed(random_values(3 * seed + 2, elements));
    q_ = narrowed(random_values(3 * seed + 3, kQueryHeads * kDim));
    for (int page = 0; page < kKeys / kPageSize; ++page) table_.push_back(page * 37 % kPages);
  }

  std::size_t row_at(int key, int head) const {
    const int slot =
        table_[static_cast<std::size_t>(key / kPageSize)] * kPageSize + key % kPageSize;
    return static_cast<std::size_t>((slot * kKvHeads + head / (kQueryHeads / kKvHeads)) * kDim);
  }

  // The work of one item, or of one for each partition.
  std::vector<std::byte> image(bool split) const {
    std::vector<std::byte> bytes(2048);
    AttentionHeader header;
    header.items[kSinglePairs] = split ? 2 : 1;
    header.merged_rows = split ? 1 : 0;
    header.items_at[kSinglePairs] = 16;
    header.rows_at = 32;
    header.merged_rows_at = 48;
    header.table_at = 64;
    AttentionItem items[2];
    for (AttentionItem& item : items) {
      item.keys = kKeys;
      item.pairs = kQueryHeads / kKvHeads;
      item.end_tile = 10;
    }
    if (split) items[0].end_tile = items[1].first_tile = kCudaPartitionTiles;
    const AttentionRow row = {.position = kKeys - 1, .sums = split ? 2 : 1};
    std::memcpy(&bytes[0], &header, sizeof(header));
    std::memcpy(&bytes[256], items, sizeof(items));
    std::memcpy(&bytes[512], &row, sizeof(row));
    std::memcpy(&bytes[1024], table_.data(), table_.size() * sizeof(table_[0]));
    return bytes;
  }

  std::vector<float> attend(bool split) {
    const CudaMemory work = upload(image(split));
    const CudaMemory k = upload(k_);
    const CudaMemory v = upload(v_);
    const CudaMemory q = upload(q_);
    const CudaMemory out = allocate<BFloat16>(kQueryHeads * kDim);
    const CudaMemory values = allocate<float>(2 * kQueryHeads * kDim);
    const CudaMemory weights = allocate<float>(2 * kQueryHeads * 2);
    AttentionParams params;
    params.image = work.bytes();
    params.k = k.bytes();
    params.v = v.bytes();
    params.head_stride = kDim * 2;
    params.token_stride = kKvHeads * params.head_stride;
    params.page_stride = kPageSize * params.token_stride;
    params.page_size = kPageSize;
    params.query_heads = kQueryHeads;
    params.kv_heads = kKvHeads;
    params.head_dim = params.value_dim = kDim;
    params.window = std::numeric_limits<std::int32_t>::max();
    params.scale = kScale;
    params.q = q.bytes();
    params.out = out.bytes();
    params.sum_values = values.as<float>();
    params.sum_weights = weights.as<float>();
    EXPECT_TRUE(split_attention(stream(), params, kSinglePairs, 3).ok());
    EXPECT_TRUE(merge_sums(stream(), params, 2).ok());
    std::vector<float> result;
    for (const BFloat16 value : download<BFloat16>(out.bytes(), kQueryHeads * kDim)) {
      result.push_back(to_float(value));
    }
    return result;
  }

  // In double.
  std::vector<double> expected(int head) const {
    std::vector<double> scores(kKeys, 0.0);
    for (int key = 0; key < kKeys; ++key) {
      for (int i = 0; i < kDim; ++i) {
        scores[static_cast<std::size_t>(key)] +=
            kScale * double{to_float(q_[static_cast<std::size_t>(head * kDim + i)])} *
            double{to_float(k_[row_at(key, head) + static_cast<std::size_t>(i)])};
      }
    }
    const double largest = *std::max_element(scores.begin(), scores.end());
    double total = 0;
    std::vector<double> sums(kDim, 0.0);
    for (int key = 0; key < kKeys; ++key) {
      const double weight = std::exp(scores[static_cast<std::size_t>(key)] - largest);
      total += weight;
      for (std::size_t i = 0; i < kDim; ++i) {
        sums[i] += weight * double{to_float(v_[row_at(key, head) + i])};
      }
    }
    for (double& sum : sums) sum /= total;
    return sums;
  }

 private:
  std::vector<BFloat16> k_, v_, q_;
  std::vector<std::int32_t> table_;
};

TEST_F(SplitAttention, IsTheSoftmaxOfTheKeysOfItsPages) {
  const std::vector<float> actual = attend(false);
  for (int head = 0; head < kQueryHeads; ++head) {
    const std::vector<double> wanted = expected(head);
    for (std::size_t i = 0; i < kDim; ++i) {
      const std::size_t at = static_cast<std::size_t>(head * kDim) + i;
      ASSERT_NEAR(actual[at], wanted[i], kTolerance) << head << " " << i;
    }
  }
}

TEST_F(SplitAttention, HasTheSameBitsHoweverItsPartitionsAreSpread) {
  EXPECT_EQ(attend(true), attend(false));
}

}  // namespace
}  // namespace stemma
