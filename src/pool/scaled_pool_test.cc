// Pools of scaled dtypes: each row of a head comes back as codes and a scale, as near as DType
// promises, whatever it is stored with and on every SIMD target.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "base/float8.h"
#include "base/prng.h"
#include "device/simd_target.h"
#include "pool/kv_pool_factory.h"
#include "pool/page_image.h"
#include "pool/pool_fixture.h"
#include "pool/store_kernel.h"

namespace stemma {
namespace {

constexpr std::uint64_t kSeed = 20260419;
constexpr std::array kScaled = {DType::kFp8E4M3, DType::kFp8E5M2, DType::kInt8};

KvShape small_shape(DType dtype, KvKind kind = KvKind::kMha, std::int64_t page_size = 3) {
  KvShape shape = {.layers = 2,
                   .pages = 5,
                   .page_size = page_size,
                   .heads = kind == KvKind::kMla ? 1 : 3,
                   .head_dim = 20,
                   .dtype = dtype,
                   .kind = kind};
  if (kind == KvKind::kMla) shape.latent_dim = 16;
  return shape;
}

std::unique_ptr<KvPool> make_pool(const KvShape& shape, KvLayout layout = KvLayout::kLayerFirst) {
  ThreadPool threads(1);
  auto pool = make_kv_pool(shape, layout, threads);
  EXPECT_TRUE(pool.ok());
  return std::move(pool).value();
}

float code_max(DType dtype) {
  if (dtype == DType::kInt8) return 127;
  return dtype == DType::kFp8E4M3 ? Float8E4M3::kMax : Float8E5M2::kMax;
}

float code_value(DType dtype, std::uint8_t code) {
  if (dtype == DType::kInt8) return static_cast<std::int8_t>(code);
  return dtype == DType::kFp8E4M3 ? to_float(Float8E4M3{code}) : to_float(Float8E5M2{code});
}

// The row of one head as it is stored: the reference twin of scale_row.
struct StoredHead {
  std::vector<std::uint8_t> codes;
  float scale = 0;
};

StoredHead stored(DType dtype, std::span<const float> values) {
  StoredHead head;
  for (const float value : values) {
    if (!std::isfinite(value)) head.scale = std::numeric_limits<float>::quiet_NaN();
    head.scale = std::max(head.scale, std::fabs(value));  // a NaN stays: it is the first argument
  }
  head.scale /= code_max(dtype);
  for (const float value : values) {
    if (!(head.scale > 0)) {
      head.codes.push_back(0);
      continue;
    }
    const float share = std::clamp(value / head.scale, -code_max(dtype), code_max(dtype));
    if (dtype == DType::kInt8) {
      head.codes.push_back(static_cast<std::uint8_t>(std::lrint(share)));
    } else {
      head.codes.push_back(dtype == DType::kFp8E4M3 ? to_float8<Float8E4M3>(share).bits
                                                    : to_float8<Float8E5M2>(share).bits);
    }
  }
  return head;
}

bool same_scale(float a, float b) {
  return std::isnan(a) ? std::isnan(b) : std::bit_cast<int>(a) == std::bit_cast<int>(b);
}

void expect_head(const KvLayerView& layer, bool values, std::int64_t slot, std::int64_t head,
                 const StoredHead& expected) {
  const std::int64_t page = slot / layer.page_size;
  const std::int64_t offset = slot % layer.page_size;
  const auto* const codes = static_cast<const std::uint8_t*>(values ? layer.v : layer.k) +
                            page * layer.page_stride + offset * layer.token_stride +
                            head * layer.head_stride;
  ASSERT_TRUE(std::equal(expected.codes.begin(), expected.codes.end(), codes));
  const float scale =
      (values ? layer.v_scales : layer.k_scales)[page * layer.scale_page_stride + offset +
                                                 head * layer.scale_head_stride];
  ASSERT_TRUE(same_scale(scale, expected.scale)) << scale << " and " << expected.scale;
}

void expect_stored(const KvPool& pool, std::int64_t layer, std::span<const std::int64_t> slots,
                   const DrawnRows& k, const DrawnRows& v) {
  const KvShape& shape = pool.shape();
  const KvLayerView view = pool.layer_view(layer);
  for (std::size_t row = 0; row < slots.size(); ++row) {
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      expect_head(view, false, slots[row], head, stored(shape.dtype, k.head(shape, row, head)));
      if (shape.kind == KvKind::kMla) continue;
      expect_head(view, true, slots[row], head, stored(shape.dtype, v.head(shape, row, head)));
    }
  }
}

std::vector<std::int64_t> shuffled_slots(const KvShape& shape, Prng& prng) {
  std::vector<std::int64_t> slots(static_cast<std::size_t>(shape.slots()));
  std::iota(slots.begin(), slots.end(), 0);
  std::shuffle(slots.begin(), slots.end(), prng);
  return slots;
}

// The same rows in every layer.
void fill(KvPool& pool, std::span<const std::int64_t> slots, const DrawnRows& k,
          const DrawnRows& v) {
  const KvRows no_rows;
  for (std::int64_t layer = 0; layer < pool.shape().layers; ++layer) {
    const KvRows& values = pool.shape().kind == KvKind::kMla ? no_rows : v.view;
    ASSERT_TRUE(pool.store(layer, slots, k.view, values).ok());
  }
}

TEST(ScaledPool, RowsComeBackAsCodesAndScalesInEveryKindAndLayout) {
  SCOPED_TRACE(kSeed);
  Prng prng(kSeed);
  for (const KvLayout layout : {KvLayout::kLayerFirst, KvLayout::kPageFirst}) {
    for (const KvKind kind : {KvKind::kMha, KvKind::kMla}) {
      for (const DType dtype : kScaled) {
        for (const std::int64_t page_size : {1, 3, 16}) {
          const KvShape shape = small_shape(dtype, kind, page_size);
          const auto pool = make_pool(shape, layout);
          const std::vector<std::int64_t> slots = shuffled_slots(shape, prng);
          const DrawnRows k(shape, shape.slots(), prng);
          const DrawnRows v(shape, shape.slots(), prng);
          fill(*pool, slots, k, v);
          for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
            expect_stored(*pool, layer, slots, k, v);
          }
        }
      }
    }
  }
}

// All that a page holds, its scales too, goes with its image: between layouts, to a place of
// another number.
TEST(ScaledPool, ScalesTravelInsideTheirPage) {
  Prng prng(kSeed);
  for (const KvKind kind : {KvKind::kMha, KvKind::kMla}) {
    const KvShape shape = small_shape(DType::kInt8, kind);
    const auto from = make_pool(shape, KvLayout::kLayerFirst);
    const auto to = make_pool(shape, KvLayout::kPageFirst);
    std::vector<std::int64_t> slots(static_cast<std::size_t>(shape.slots()));
    std::iota(slots.begin(), slots.end(), 0);
    const DrawnRows k(shape, shape.slots(), prng);
    const DrawnRows v(shape, shape.slots(), prng);
    fill(*from, slots, k, v);
    EXPECT_EQ(static_cast<std::int64_t>(page_image_bytes(*from)), shape.page_bytes());
    std::vector<std::byte> image(page_image_bytes(*from));
    std::vector<std::uint32_t> sums(2);
    for (const PageId page : id_range(PageId(0), shape.pages)) {
      copy_page_out(*from, page, {0, 2}, image, sums);
      const PageId other(static_cast<std::int32_t>(shape.pages - 1 - page.value()));
      ASSERT_EQ(copy_page_in(*to, other, {0, 2}, image, sums), std::nullopt);
      for (std::int64_t i = 0; i < shape.page_size; ++i) {
        slots[static_cast<std::size_t>(page.value() * shape.page_size + i)] =
            other.value() * shape.page_size + i;
      }
    }
    for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
      expect_stored(*to, layer, slots, k, v);
    }
  }
}

// As those of 16 bits, whatever the page size: the scales lie elsewhere.
TEST(ScaledPool, CodesOfWholeLinesBeginALine) {
  for (const std::int64_t page_size : {1, 16}) {
    KvShape shape = small_shape(DType::kInt8, KvKind::kMha, page_size);
    shape.head_dim = 64;
    for (const KvLayout layout : {KvLayout::kLayerFirst, KvLayout::kPageFirst}) {
      const auto pool = make_pool(shape, layout);
      for (const auto& piece : pool->layer_pieces(1)) {
        for (const PageId page : id_range(PageId(0), shape.pages)) {
          const auto at = reinterpret_cast<std::uintptr_t>(piece.of(page));
          EXPECT_EQ(at % (piece.bytes >= 64 * page_size ? 64 : 4), 0u);
        }
      }
    }
  }
}

// Stores `rows` in another dtype and expects what their widened values give.
template <typename Element>
void expect_stored_from(DType source, Element (*narrow)(float)) {
  Prng prng(kSeed);
  const KvShape shape = small_shape(DType::kFp8E4M3);
  const auto pool = make_pool(shape);
  const std::vector<std::int64_t> slots = shuffled_slots(shape, prng);
  DrawnRows wide(shape, shape.slots(), prng);
  std::vector<Element> narrow_values;
  for (float& value : wide.values) {
    narrow_values.push_back(narrow(value));
    value = to_float(narrow_values.back());
  }
  KvRows rows = wide.view;
  rows.elements = narrow_values.data();
  rows.dtype = source;
  ASSERT_TRUE(pool->store(0, std::span<const std::int64_t>(slots), rows, rows).ok());
  expect_stored(*pool, 0, slots, wide, wide);
}

TEST(ScaledPool, RowsOf16BitsAreScaledAsTheirValues) {
  expect_stored_from<BFloat16>(DType::kBF16, &to_bfloat16);
  expect_stored_from<Float16>(DType::kF16, &to_float16);
}

TEST(ScaledPool, RefusesCodesWithoutScalesByName) {
  Prng prng(kSeed);
  const KvShape shape = small_shape(DType::kInt8);
  const auto pool = make_pool(shape);
  const DrawnRows rows(shape, 1, prng);
  for (const DType dtype : kScaled) {
    KvRows codes = rows.view;
    codes.dtype = dtype;
    const std::vector<std::int64_t> slots = {2};
    const Status status = pool->store(0, std::span<const std::int64_t>(slots), rows.view, codes);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(status.error().detail, "store: v is " + std::string(dtype_name(dtype)) +
                                         " without scales, the pool takes f32, f16 or bf16");
  }
}

TEST(ScaledPool, ARowOfZerosIsZeros) {
  for (const DType dtype : kScaled) {
    const StoredHead zeros = stored(dtype, std::vector<float>(20));
    EXPECT_EQ(zeros.scale, 0);
    const KvShape shape = small_shape(dtype);
    const auto pool = make_pool(shape);
    Prng prng(kSeed);
    DrawnRows rows(shape, 1, prng);
    std::fill(rows.values.begin(), rows.values.end(), -0.0f);
    const std::vector<std::int64_t> slots = {4};
    ASSERT_TRUE(pool->store(0, std::span<const std::int64_t>(slots), rows.view, rows.view).ok());
    expect_head(pool->layer_view(0), true, 4, 1, zeros);
  }
}

// What has no scale must not come back as some number: the whole row of that head does as NaN.
TEST(ScaledPool, ARowThatIsNotFiniteComesBackAsNan) {
  for (const DType dtype : kScaled) {
    for (const float wrong : {HUGE_VALF, -HUGE_VALF, std::nanf("")}) {
      for (const std::int64_t at : {0, 7, 19}) {  // in a vector and behind the last one
        const KvShape shape = small_shape(dtype);
        const auto pool = make_pool(shape);
        Prng prng(kSeed);
        DrawnRows rows(shape, 1, prng);
        rows.values[static_cast<std::size_t>(shape.head_dim + at)] = wrong;
        const std::vector<std::int64_t> slots = {4};
        const std::span<const std::int64_t> one = slots;
        ASSERT_TRUE(pool->store(0, one, rows.view, rows.view).ok());
        expect_stored(*pool, 0, slots, rows, rows);
        const KvLayerView view = pool->layer_view(0);
        const std::int64_t place = view.scale_page_stride + 1;
        EXPECT_TRUE(std::isnan(view.k_scales[place + view.scale_head_stride]));
        EXPECT_FALSE(std::isnan(view.k_scales[place]));
      }
    }
  }
}

// The row of one head on its own, stored by the chosen SIMD target.
StoredHead scale_one(DType dtype, std::span<const float> values) {
  StoredHead head;
  head.codes.resize(values.size());
  ScaledRow row;
  row.source = reinterpret_cast<const std::byte*>(values.data());
  row.heads = 1;
  row.head_dim = static_cast<std::int64_t>(values.size());
  row.target_dtype = dtype;
  row.codes = reinterpret_cast<std::byte*>(head.codes.data());
  row.scales = &head.scale;
  scale_row(row);
  return head;
}

// Rows of many widths and magnitudes, from below the least f32 that is normal to the largest.
std::vector<std::vector<float>> drawn_rows() {
  Prng prng(kSeed);
  std::vector<std::vector<float>> rows;
  for (int i = 0; i < 4000; ++i) {
    std::vector<float> row(static_cast<std::size_t>(1 + prng.below(150)));
    const int exponent = static_cast<int>(prng.below(277)) - 149;
    const int range = static_cast<int>(prng.below(40));  // of exponents in a row
    for (float& value : row) {
      const double magnitude =
          std::ldexp(1 + prng.unit(), exponent - static_cast<int>(prng.below(range + 1)));
      value = static_cast<float>(prng.below(2) == 0 ? magnitude : -magnitude);
    }
    rows.push_back(std::move(row));
  }
  rows.push_back(
      {std::numeric_limits<float>::max(), -std::numeric_limits<float>::max(), 1.0f, 0.0f});
  rows.push_back({std::numeric_limits<float>::denorm_min(), 0.0f});
  rows.push_back({std::numeric_limits<float>::min(), -std::numeric_limits<float>::denorm_min()});
  return rows;
}

double promised_error(DType dtype, double value, double largest) {
  const double rounding = std::max(std::ldexp(largest, -23), std::ldexp(1.0, -133));
  switch (dtype) {
    case DType::kFp8E4M3:
      return rounding + std::max(std::fabs(value) / 16, largest / 458'752);
    case DType::kFp8E5M2:
      return rounding + std::max(std::fabs(value) / 8, std::ldexp(largest, -32));
    default:
      return rounding + largest / 254;
  }
}

TEST(Scaling, StaysWithinThePromisedError) {
  SCOPED_TRACE(kSeed);
  for (const std::vector<float>& row : drawn_rows()) {
    double largest = 0;
    for (const float value : row) largest = std::max(largest, std::fabs(double{value}));
    for (const DType dtype : kScaled) {
      const StoredHead head = scale_one(dtype, row);
      for (std::size_t i = 0; i < row.size(); ++i) {
        const double back = double{code_value(dtype, head.codes[i])} * double{head.scale};
        ASSERT_LE(std::fabs(back - double{row[i]}), promised_error(dtype, row[i], largest))
            << dtype_name(dtype) << " " << row[i] << " came back as " << back << " in a row of "
            << largest;
      }
    }
  }
}

TEST(Scaling, GivesTheSameBitsOnEverySimdTarget) {
  SCOPED_TRACE(kSeed);
  const std::vector<std::vector<float>> rows = drawn_rows();
  for (const std::string_view target : simd_target_names()) {
    ASSERT_TRUE(try_select_simd_target(target));
    for (const std::vector<float>& row : rows) {
      for (const DType dtype : kScaled) {
        const StoredHead head = scale_one(dtype, row);
        const StoredHead expected = stored(dtype, row);
        ASSERT_EQ(head.codes, expected.codes) << target << " " << dtype_name(dtype);
        ASSERT_TRUE(same_scale(head.scale, expected.scale));
      }
    }
  }
  select_best_simd_target();
}

// Every tie and its neighbours: a row whose scale is 1.
TEST(Scaling, RoundsToTheNearestAndHalfwayToEven) {
  for (const DType dtype : kScaled) {
    std::vector<float> row = {code_max(dtype)};
    for (std::uint32_t code = 0; code < 0x7Eu; ++code) {
      const float low = code_value(dtype, static_cast<std::uint8_t>(code));
      const float high = code_value(dtype, static_cast<std::uint8_t>(code + 1));
      if (!std::isfinite(high)) break;
      const float middle = (low + high) / 2;
      for (const float value :
           {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e6f)}) {
        row.push_back(value);
        row.push_back(-value);
      }
    }
    const StoredHead head = scale_one(dtype, row);
    EXPECT_EQ(head.scale, 1);
    EXPECT_EQ(head.codes, stored(dtype, row).codes);
  }
}

}  // namespace
}  // namespace stemma
