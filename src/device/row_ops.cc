#include "device/row_ops.h"

#include "base/check.h"
#include "device/row_kernels.h"

namespace stemma {

namespace {

template <typename Row>
std::int64_t size_of(const Row& row) {
  return static_cast<std::int64_t>(row.size());
}

}  // namespace

void rms_norm(std::span<const float> x, std::span<const float> weight, float epsilon,
              std::span<float> out) {
  STEMMA_CHECK(!x.empty(), "a row has values");
  STEMMA_CHECK_EQ(x.size(), weight.size());
  STEMMA_CHECK_EQ(x.size(), out.size());
  row_kernels().rms_norm(x.data(), weight.data(), epsilon, out.data(), size_of(x));
}

void rotate_halves(std::span<float> x, std::span<const float> cosines,
                   std::span<const float> sines) {
  STEMMA_CHECK_EQ(cosines.size(), sines.size());
  STEMMA_CHECK_GE(x.size(), 2 * cosines.size());
  row_kernels().rotate_halves(x.data(), cosines.data(), sines.data(), size_of(cosines));
}

void silu_multiply(std::span<const float> gate, std::span<const float> up, std::span<float> out) {
  STEMMA_CHECK_EQ(gate.size(), up.size());
  STEMMA_CHECK_EQ(gate.size(), out.size());
  row_kernels().silu_multiply(gate.data(), up.data(), out.data(), size_of(gate));
}

void gelu_multiply(std::span<const float> gate, std::span<const float> up, std::span<float> out) {
  STEMMA_CHECK_EQ(gate.size(), up.size());
  STEMMA_CHECK_EQ(gate.size(), out.size());
  row_kernels().gelu_multiply(gate.data(), up.data(), out.data(), size_of(gate));
}

void cap_by_tanh(std::span<float> x, float cap) {
  STEMMA_CHECK(cap > 0, "a cap is positive");
  row_kernels().cap_by_tanh(x.data(), cap, size_of(x));
}

void add_to(std::span<float> x, std::span<const float> y) {
  STEMMA_CHECK_EQ(x.size(), y.size());
  row_kernels().add_to(x.data(), y.data(), size_of(x));
}

void convert_to_f32(const void* values, WeightType type, std::span<float> out) {
  row_kernels().convert_to_f32(values, type, out.data(), size_of(out));
}

std::int64_t argmax(std::span<const float> x) {
  STEMMA_CHECK(!x.empty(), "a row has values");
  return row_kernels().argmax(x.data(), size_of(x));
}

void exp_of_scaled(std::span<const float> x, double zero, double unit, std::span<double> out) {
  STEMMA_CHECK_EQ(x.size(), out.size());
  STEMMA_CHECK(unit > 0, "a unit is positive");
  row_kernels().exp_of_scaled(x.data(), zero, unit, out.data(), size_of(x));
}

}  // namespace stemma
