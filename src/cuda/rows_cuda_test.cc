// Row kernels of a GPU: against the same in double, over ragged widths and poisoned outputs.
// Tolerances: f32 results differ by some roundings of a sum over the row and by the fast
// exponential (2e-6 of the magnitude); rows of 16 bits by one rounding more.
#include "cuda/rows_cuda.h"

#include <array>
#include <cmath>
#include <limits>

#include "base/float16.h"
#include "cuda/rows_fixture.h"
#include "device/cuda_fixture.h"
#include "device/rounded_strips.h"

namespace stemma {
namespace {

constexpr double kBf16Rounding = 1.0 / 256;

std::vector<BFloat16> rounded(const std::vector<float>& values) {
  std::vector<BFloat16> result;
  for (const float value : values) result.push_back(to_bfloat16(value));
  return result;
}

std::vector<double> row_of(const std::vector<float>& rows, std::size_t row, std::size_t width) {
  const auto begin = rows.begin() + static_cast<std::ptrdiff_t>(row * width);
  return {begin, begin + static_cast<std::ptrdiff_t>(width)};
}

class RowsCudaTest : public CudaFixture {};

TEST_F(RowsCudaTest, AnEmbeddingIsWidenedAndScaled) {
  constexpr std::int64_t kHidden = 72;
  const auto table = rounded(random_floats(10 * kHidden, 1));
  const CudaMemory embeddings = upload(table);
  const CudaMemory tokens = upload(std::vector<std::int32_t>{7, -2, 0, -1});
  const CudaMemory sampled = upload(std::vector<std::int32_t>{3, 9});
  const CudaMemory residual = allocate<float>(4 * kHidden);
  ASSERT_TRUE(embed_rows(stream(), {.tokens = tokens.as<std::int32_t>(),
                                    .sampled = sampled.as<std::int32_t>(),
                                    .embeddings = embeddings.bytes(),
                                    .residual = residual.as<float>(),
                                    .rows = 4,
                                    .hidden = kHidden,
                                    .vocab_tokens = 10,
                                    .scale = 1.5f,
                                    .type = WeightType::kBf16})
                  .ok());
  const auto rows = download<float>(residual.bytes(), 4 * kHidden);
  const std::int64_t expected[] = {7, 9, 0, 3};  // below 0: what the step before sampled
  for (std::int64_t i = 0; i < 4 * kHidden; ++i) {
    const std::int64_t from = expected[i / kHidden] * kHidden + i % kHidden;
    EXPECT_EQ(rows[static_cast<std::size_t>(i)],
              1.5f * to_float(table[static_cast<std::size_t>(from)]));
  }
}

TEST_F(RowsCudaTest, ARoundedEmbeddingIsWhatItIsOnACpu) {
  constexpr std::int64_t kHidden = 136;
  constexpr std::int64_t kTokens = 19;
  ThreadPool threads(1);
  RoundingError unused;
  const auto table = random_floats(kTokens * kHidden, 1);
  const auto packed = PackedWeights::quantise({table.data(), WeightType::kF32, kTokens, kHidden},
                                              WeightFormat::kInt8, threads, unused);
  ASSERT_TRUE(packed.ok());
  const CudaMemory embeddings = upload(strips_of(*packed, threads));
  const CudaMemory tokens = upload(std::vector<std::int32_t>{7, -1, 18});
  const CudaMemory sampled = upload(std::vector<std::int32_t>{3});
  const CudaMemory residual = allocate<float>(3 * kHidden);
  EmbedRows params = {.tokens = tokens.as<std::int32_t>(),
                      .sampled = sampled.as<std::int32_t>(),
                      .embeddings = embeddings.bytes(),
                      .residual = residual.as<float>(),
                      .rows = 3,
                      .hidden = kHidden,
                      .vocab_tokens = kTokens,
                      .scale = 11.3f,
                      .codes = CodeForm::kInt8};
  ASSERT_TRUE(embed_rows(stream(), params).ok());
  const auto rows = download<float>(residual.bytes(), 3 * kHidden);
  std::vector<float> expected(kHidden);
  for (std::size_t row = 0; row < 3; ++row) {
    packed->unpack_row(std::array{7, 3, 18}[row], expected);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(rows[row * expected.size() + i], expected[i] * 11.3f) << row << " " << i;
    }
  }
  params.codes = CodeForm::kInt4;
  EXPECT_EQ(embed_rows(stream(), params).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(RowsCudaTest, ABranchIsNormalisedAddedAndTheSumNormalised) {
  for (const std::int64_t hidden : {8, 264, 4360}) {
    const auto width = static_cast<std::size_t>(hidden);
    const auto x = random_floats(2 * hidden, 2);
    const auto branch = random_floats(2 * hidden, 3, 4.0f);
    const auto bias = random_floats(hidden, 4);
    const auto branch_norm = random_floats(hidden, 5);
    const auto norm = random_floats(hidden, 6);
    const CudaMemory residual = upload(x);
    const CudaMemory device_branch = upload(branch);
    const CudaMemory device_bias = upload(bias);
    const CudaMemory device_branch_norm = upload(branch_norm);
    const CudaMemory device_norm = upload(norm);
    const CudaMemory out = allocate<float>(2 * width);
    ASSERT_TRUE(norm_rows(stream(), {.residual = residual.as<float>(),
                                     .branch = device_branch.as<float>(),
                                     .bias = device_bias.as<float>(),
                                     .branch_norm = device_branch_norm.as<float>(),
                                     .norm = device_norm.as<float>(),
                                     .out = out.bytes(),
                                     .rows = 2,
                                     .hidden = hidden,
                                     .epsilon = 1e-6f,
                                     .type = WeightType::kF32})
                    .ok());
    const auto sums = download<float>(residual.bytes(), 2 * width);
    const auto values = download<float>(out.bytes(), 2 * width);
    for (std::size_t row = 0; row < 2; ++row) {
      std::vector<double> added = row_of(branch, row, width);
      for (std::size_t i = 0; i < width; ++i) added[i] += bias[i];
      added = normed(added, branch_norm, 1e-6);
      for (std::size_t i = 0; i < width; ++i) added[i] += x[row * width + i];
      const auto expected = normed(added, norm, 1e-6);
      for (std::size_t i = 0; i < width; ++i) {
        ASSERT_NEAR(sums[row * width + i], added[i], 4e-6) << hidden << ": " << i;
        ASSERT_NEAR(values[row * width + i], expected[i], 8e-6) << hidden << ": " << i;
      }
    }
  }
}

TEST_F(RowsCudaTest, ChosenRowsAreNormalisedAndTheStreamIsKept) {
  constexpr std::int64_t kHidden = 40;
  const auto x = random_floats(3 * kHidden, 7);
  const auto branch = random_floats(3 * kHidden, 8);
  const auto norm = random_floats(kHidden, 9);
  const CudaMemory residual = upload(x);
  const CudaMemory device_branch = upload(branch);
  const CudaMemory device_norm = upload(norm);
  const CudaMemory chosen = upload(std::vector<std::int32_t>{2, 0});
  const CudaMemory out = allocate<BFloat16>(2 * kHidden);
  ASSERT_TRUE(norm_rows(stream(), {.residual = residual.as<float>(),
                                   .branch = device_branch.as<float>(),
                                   .norm = device_norm.as<float>(),
                                   .chosen = chosen.as<std::int32_t>(),
                                   .out = out.bytes(),
                                   .rows = 2,
                                   .hidden = kHidden,
                                   .epsilon = 1e-5f,
                                   .keep = false,
                                   .type = WeightType::kBf16})
                  .ok());
  EXPECT_EQ(download<float>(residual.bytes(), x.size()), x);
  const auto values = download<BFloat16>(out.bytes(), 2 * kHidden);
  for (std::size_t row = 0; row < 2; ++row) {
    const std::size_t from = row == 0 ? 2 : 0;
    std::vector<double> sum = row_of(x, from, kHidden);
    for (std::size_t i = 0; i < kHidden; ++i) sum[i] += branch[from * kHidden + i];
    const auto expected = normed(sum, norm, 1e-5);
    for (std::size_t i = 0; i < kHidden; ++i) {
      EXPECT_NEAR(to_float(values[row * kHidden + i]), expected[i],
                  kBf16Rounding * std::abs(expected[i]) + 1e-6);
    }
  }
}

double silu(double x) {
  return x / (1 + std::exp(-x));
}
double gelu(double x) {
  return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

TEST_F(RowsCudaTest, GatesAreThoseOfDouble) {
  constexpr std::int64_t kWidth = 328;
  auto gate_up = random_floats(2 * 2 * kWidth, 10, 30.0f);
  gate_up[0] = 200.0f;
  gate_up[1] = -200.0f;
  const auto bias = random_floats(2 * kWidth, 11);
  const CudaMemory device_gate_up = upload(gate_up);
  const CudaMemory device_bias = upload(bias);
  for (const bool is_gelu : {false, true}) {
    const CudaMemory out = allocate<float>(2 * kWidth);
    ASSERT_TRUE(gate_rows(stream(), {.gate_up = device_gate_up.bytes(),
                                     .bias = device_bias.as<float>(),
                                     .out = out.bytes(),
                                     .rows = 2,
                                     .width = kWidth,
                                     .gelu = is_gelu,
                                     .type = WeightType::kF32})
                    .ok());
    const auto values = download<float>(out.bytes(), 2 * kWidth);
    for (std::size_t i = 0; i < 2 * kWidth; ++i) {
      const std::size_t column = i % kWidth;
      const std::size_t row = i / kWidth * 2 * kWidth;
      const double gate = double{gate_up[row + column]} + bias[column];
      const double up = double{gate_up[row + kWidth + column]} + bias[kWidth + column];
      const double expected = (is_gelu ? gelu(gate) : silu(gate)) * up;
      // gelu of a negative gate is a small difference of large values
      EXPECT_NEAR(values[i], expected,
                  4e-6 * std::abs(expected) + 2e-6 * std::abs(is_gelu ? gate * up : up))
          << is_gelu << " " << i;
    }
  }
}

class TopCudaTest : public CudaFixture {
 protected:
  std::vector<std::int32_t> top(const std::vector<float>& logits, std::int64_t columns) {
    const CudaMemory device_logits = upload(logits);
    const std::int64_t rows = static_cast<std::int64_t>(logits.size()) / columns;
    const CudaMemory tokens = allocate<std::int32_t>(static_cast<std::size_t>(rows));
    EXPECT_TRUE(top_rows(stream(), {.logits = device_logits.as<float>(),
                                    .tokens = tokens.as<std::int32_t>(),
                                    .rows = rows,
                                    .columns = columns})
                    .ok());
    return download<std::int32_t>(tokens.bytes(), static_cast<std::size_t>(rows));
  }
};

TEST_F(TopCudaTest, TheLargestLogitWinsAndOfEqualsTheFirst) {
  auto logits = random_floats(2 * 2503, 12);
  logits[1700] = logits[90] = 5.0f;
  logits[2503 + 2502] = 6.0f;
  EXPECT_EQ(top(logits, 2503), (std::vector<std::int32_t>{90, 2502}));
}

TEST_F(TopCudaTest, WhatIsNoNumberNeverWins) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(top({kNan, -3.0f, kNan, -4.0f}, 4), (std::vector<std::int32_t>{1}));
  EXPECT_EQ(top({kNan, -kInfinity, kNan, -kInfinity}, 4), (std::vector<std::int32_t>{-1}));
  EXPECT_EQ(top({1.0f, kInfinity, 2.0f, kInfinity}, 4), (std::vector<std::int32_t>{1}));
}

TEST_F(TopCudaTest, ACapIsAppliedToTheLogits) {
  const auto logits = random_floats(300, 13, 90.0f);
  const CudaMemory device_logits = upload(logits);
  const CudaMemory tokens = allocate<std::int32_t>(1);
  ASSERT_TRUE(top_rows(stream(), {.logits = device_logits.as<float>(),
                                  .tokens = tokens.as<std::int32_t>(),
                                  .rows = 1,
                                  .columns = 300,
                                  .cap = 30.0f})
                  .ok());
  const auto capped = download<float>(device_logits.bytes(), 300);
  for (std::size_t i = 0; i < 300; ++i) {
    EXPECT_NEAR(capped[i], 30.0 * std::tanh(double{logits[i]} / 30.0), 3e-5) << i;
  }
}

}  // namespace
}  // namespace stemma
