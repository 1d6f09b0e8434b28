// CudaRunner over pools of codes: the logits of a CPU whose attention rounds what the GPU's does,
// and the same bits however a text was cut.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "attention/attention.h"
#include "attention/attention_work_cuda.h"
#include "attention/stored_element.h"
#include "base/float16.h"
#include "cuda/cuda_runner_fixture.h"

namespace stemma {
namespace {

constexpr std::int64_t kTokens = 52;  // longer than the windows, and one tile of keys

// What products of attention read, where pools are scaled.
double operand(double value) {
  return double{to_float(to_float16(static_cast<float>(value)))};
}

// Attention in double of what CudaAttention rounds: q, and weights, which V's scale is a part of.
// REQUIRES: one request, of texts of one tile, so that the largest score is known before any
// weight.
class OperandAttention final : public Attention {
 public:
  explicit OperandAttention(const AttentionShape& shape) : shape_(shape) {}

  std::string_view name() const override { return "operands"; }
  void plan(const KvBatch& batch) override { batch_ = batch; }
  void run(const KvLayerView& layer, const float* q, float* out) override {
    const std::int64_t group = shape_.query_heads / shape_.kv_heads;
    for (std::int64_t i = 0; i < batch_.rows() * shape_.query_heads; ++i) {
      const std::int64_t position =
          batch_.positions[static_cast<std::size_t>(i / shape_.query_heads)];
      const Head head = {layer, i % shape_.query_heads / group, position};
      attend(head, q + i * shape_.head_dim, out + i * shape_.value_dim());
    }
  }

 private:
  struct Head {
    const KvLayerView& layer;
    std::int64_t kv_head;
    std::int64_t position;
  };

  SlotId slot(std::int64_t key) const { return shape_.table(batch_).slot(0, key); }

  double score(const Head& head, std::int64_t key, const float* q) const {
    const KvLayerView& layer = head.layer;
    const std::int64_t row = stored_row(layer, slot(key), head.kv_head);
    double product = 0;
    for (std::int64_t i = 0; i < shape_.head_dim; ++i) {
      product += operand(double{q[i]}) * stored_element(layer.k, layer.dtype, row + i);
    }
    const double scaled = product * double{shape_.scale} *
                          stored_scale(layer, layer.k_scales, slot(key), head.kv_head);
    const double cap = shape_.score_cap;
    return cap > 0 ? cap * std::tanh(scaled / cap) : scaled;
  }

  double value_scale(const Head& head, std::int64_t key) const {
    const float* const scales = shape_.latent_dim > 0 ? head.layer.k_scales : head.layer.v_scales;
    return stored_scale(head.layer, scales, slot(key), head.kv_head);
  }

  void attend(const Head& head, const float* q, float* out) const {
    const std::int64_t first = shape_.first_seen(head.position);
    std::vector<double> scores;
    for (std::int64_t key = first; key <= head.position; ++key) {
      scores.push_back(score(head, key, q) + std::log(value_scale(head, key)));
    }
    const double most = *std::max_element(scores.begin(), scores.end());
    std::vector<double> sums(static_cast<std::size_t>(shape_.value_dim()));
    double total = 0;
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const std::int64_t key = first + static_cast<std::int64_t>(i);
      const double weight = std::exp(scores[i] - most);
      total += weight / value_scale(head, key);
      std::int64_t at = stored_row(head.layer, slot(key), head.kv_head);
      for (double& sum : sums) {
        sum += operand(weight) * stored_element(head.layer.v, head.layer.dtype, at++);
      }
    }
    for (std::size_t i = 0; i < sums.size(); ++i) out[i] = static_cast<float>(sums[i] / total);
  }

  AttentionShape shape_;
  KvBatch batch_;
};

std::unique_ptr<Attention> with_operands(std::unique_ptr<Attention> /*exact*/,
                                         const AttentionShape& shape) {
  return std::make_unique<OperandAttention>(shape);
}

class CudaScaledPoolsTest : public CudaRunnerFixture {
 protected:
  // The median of three prompts.
  double distance(const char* name, DType dtype) {
    write_model(dense_config(name), WeightType::kF32);
    std::array<double, 3> distances;
    for (std::size_t i = 0; i < distances.size(); ++i) {
      const auto tokens = prompt(kTokens, 3 + i);
      distances[i] = relative_distance(logits_of_cpu(dtype, tokens, with_operands),
                                       logits_alone({.dtype = dtype}, tokens, kTokens));
    }
    std::sort(distances.begin(), distances.end());
    return distances[1];
  }
};

// Both round the same numbers. Where sums of f32, which differ by about 2^-24 √160 (by ten times as
// much in scores that are capped), fall on two sides of a rounding, one operand in hundreds differs
// by 2^-11 of itself, and a code after it by its step: in the root of the mean square
// √(2^-11 × 2^-24 √160), and of four operands in each of three layers 1e-4, with caps 2e-4; one
// code of fp8_e5m2, whose steps are a quarter, is more than all of these. So it is 1e-5 where no
// code differs, and of 81 prompts (six families, all three dtypes) up to 1.9e-3 of 79 and 3e-3 of
// two of e5m2: the median of three prompts says more than one does. A window or a cap of another
// width, or scores that are off by 2 %, are farther than is allowed.
//
// A CPU that rounds no operands is farther away (6e-3, 6e-3 to 9e-3 and 2e-3 of gemma3's e4m3, e5m2
// and int8), because K and V that differ by 2^-12 get another code here and there in the second
// layer and more often in the third; in none of the first layer.
TEST_F(CudaScaledPoolsTest, LogitsAreThoseOfACpuThatRoundsTheSameOperands) {
  static_assert(kTokens <= kCudaTileKeys);
  constexpr double kAllowed = 0x1p-9;
  for (const DType dtype : {DType::kFp8E4M3, DType::kFp8E5M2, DType::kInt8}) {
    SCOPED_TRACE(dtype_name(dtype));
    EXPECT_LT(distance("gemma3", dtype), kAllowed);
  }
  EXPECT_LT(distance("gemma2", DType::kFp8E4M3), kAllowed);
  EXPECT_LT(distance("qwen3", DType::kFp8E4M3), kAllowed);
  EXPECT_LT(distance("qwen2", DType::kInt8), kAllowed);
  EXPECT_LT(distance("deepseek_v2", DType::kInt8), kAllowed);
  EXPECT_LT(distance("deepseek_v3", DType::kFp8E4M3), kAllowed);
}

TEST_F(CudaScaledPoolsTest, BitsDoNotDependOnChunksOrPages) {
  for (const auto& [name, dtype] :
       {std::pair("qwen2", DType::kInt8), std::pair("gemma3", DType::kFp8E4M3),
        std::pair("deepseek_v3", DType::kInt8)}) {
    SCOPED_TRACE(name);
    write_model(name, WeightType::kF32);
    const auto tokens = prompt(30, 3);
    const auto whole = logits_alone({.dtype = dtype}, tokens, 30);
    const CudaBench decoding = bench({.page_size = 4, .dtype = dtype, .seed = 5});
    ASSERT_TRUE(decoding.trial->step({{{decoding.trial->add(tokens), 26}}}).ok());
    ASSERT_TRUE(decoding.trial->finish(0, 1).ok());
    expect_same_bits(whole, decoding.trial->logits(0));
  }
}

}  // namespace
}  // namespace stemma
