// CudaPool: whatever is stored, every byte of the pool is that of the pool in host memory of the
// same shape and layout to which the same was stored.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/float16.h"
#include "base/prng.h"
#include "device/cuda_fixture.h"
#include "pool/cuda_pool.h"
#include "pool/kv_pool_factory.h"

namespace stemma {
namespace {

constexpr std::uint64_t kSeed = 20261123;
constexpr std::array kLayouts = {KvLayout::kLayerFirst, KvLayout::kPageFirst};

KvShape shape_of(KvKind kind, DType dtype, std::int64_t page_size, std::int64_t head_dim) {
  KvShape shape = {.layers = 2,
                   .pages = 4,
                   .page_size = page_size,
                   .heads = kind == KvKind::kMla ? 1 : 3,
                   .head_dim = head_dim,
                   .dtype = dtype,
                   .kind = kind};
  if (kind == KvKind::kMla) shape.latent_dim = head_dim - 2;
  if (kind == KvKind::kDoubleSparse) shape.label_channels = 8;
  return shape;
}

HeavyChannels drawn_channels(const KvShape& shape, Prng& prng) {
  HeavyChannels heavy = {shape.layers, shape.heads, shape.label_channels, {}};
  if (shape.kind != KvKind::kDoubleSparse) return {};
  std::vector<std::int32_t> all(static_cast<std::size_t>(shape.head_dim));
  std::iota(all.begin(), all.end(), 0);
  for (std::int64_t head = 0; head < shape.layers * shape.heads; ++head) {
    std::shuffle(all.begin(), all.end(), prng);
    std::sort(all.begin(), all.begin() + shape.label_channels);
    heavy.channels.insert(heavy.channels.end(), all.begin(), all.begin() + shape.label_channels);
    std::sort(all.begin(), all.end());
  }
  return heavy;
}

// Numbers of every size, zeros, and now and then one that is not finite.
float drawn_value(Prng& prng) {
  if (prng.below(40) == 0) return 0.0f;
  if (prng.below(400) == 0) return -std::numeric_limits<float>::infinity();
  if (prng.below(400) == 0) return std::numeric_limits<float>::quiet_NaN();
  const auto power = static_cast<int>(prng.below(40)) - 30;
  return std::ldexp(static_cast<float>(prng.unit() * 2 - 1), power);
}

// Rows of one side in a dtype that is not scaled, on the host.
struct Side {
  std::vector<std::byte> bytes;
  KvRows rows;
};

Side drawn_side(const KvShape& shape, DType dtype, std::int64_t count, Prng& prng) {
  Side side;
  const std::int64_t stride = shape.row_elements() + prng.below(3) * 8;
  const std::int64_t each = dtype_bytes(dtype);
  side.bytes.resize(static_cast<std::size_t>(count * stride * each));
  for (std::int64_t i = 0; i < count * stride; ++i) {
    const float value = drawn_value(prng);
    std::byte* const to = side.bytes.data() + i * each;
    if (dtype == DType::kF32) std::memcpy(to, &value, 4);
    if (dtype == DType::kF32) continue;
    const std::uint16_t bits =
        dtype == DType::kF16 ? to_float16(value).bits : to_bfloat16(value).bits;
    std::memcpy(to, &bits, 2);
  }
  side.rows = {.elements = side.bytes.data(),
               .dtype = dtype,
               .rows = count,
               .heads = shape.heads,
               .head_dim = shape.head_dim,
               .row_stride = stride};
  return side;
}

// What one head's row of f32 has: its largest magnitude, of any size, zeros of both signs, and
// numbers next to where one code ends and another begins.
std::vector<float> drawn_borders(std::int64_t elements, float largest_code, Prng& prng) {
  constexpr std::array kPowers = {-140, -70, -61, -60, -59, -20, 3, 60, 110};
  const float largest =
      std::ldexp(static_cast<float>(prng.unit() + 1),
                 kPowers[static_cast<std::size_t>(prng.below(std::ssize(kPowers)))]);
  std::vector<float> row(static_cast<std::size_t>(elements));
  for (float& value : row) {
    const auto steps = static_cast<float>(prng.below(9) == 0 ? 0 : prng.below(254)) / 2;
    const auto finer = std::ldexp(steps, -static_cast<int>(prng.below(3) * prng.below(12)));
    value = std::min(largest, finer * (largest / largest_code));
    for (std::int64_t i = prng.below(3); i > 0; --i) {
      value = std::nextafter(value, prng.below(2) == 0 ? 0.0f : largest);
    }
    if (prng.below(2) == 0) value = -value;
  }
  row[static_cast<std::size_t>(prng.below(elements))] = largest;
  return row;
}
Side border_side(const KvShape& shape, float largest_code, std::int64_t count, Prng& prng) {
  Side side;
  for (std::int64_t head = 0; head < count * shape.heads; ++head) {
    const std::vector<float> row = drawn_borders(shape.head_dim, largest_code, prng);
    const auto bytes = std::as_bytes(std::span(row));
    side.bytes.insert(side.bytes.end(), bytes.begin(), bytes.end());
  }
  side.rows = {.elements = side.bytes.data(),
               .dtype = DType::kF32,
               .rows = count,
               .heads = shape.heads,
               .head_dim = shape.head_dim,
               .row_stride = shape.row_elements()};
  return side;
}

class CudaPools : public CudaFixture {
 protected:
  // The two pools, of the same bytes.
  void make_pools(const KvShape& shape, KvLayout layout) {
    ThreadPool threads(1);
    const HeavyChannels heavy = drawn_channels(shape, prng_);
    auto host = make_kv_pool(shape, layout, threads, heavy);
    auto cuda = CudaPool::create(device(), shape, layout, heavy);
    ASSERT_TRUE(host.ok());
    ASSERT_TRUE(cuda.ok()) << cuda.error().detail;
    host_ = std::move(host).value();
    cuda_ = std::move(cuda).value();
  }
  void TearDown() override {
    cuda_.reset();
    CudaFixture::TearDown();
  }

  // The rows, on the device.
  KvRows on_device(const Side& side, CudaMemory& memory) {
    memory = upload(side.bytes);
    KvRows rows = side.rows;
    rows.elements = memory.bytes();
    rows.device = DeviceKind::kCuda;
    return rows;
  }

  template <typename Slot>
  void store_in_both(std::int64_t layer, DType dtype, std::int64_t count) {
    const KvShape& shape = host_->shape();
    std::vector<Slot> slots(static_cast<std::size_t>(shape.slots()));
    std::iota(slots.begin(), slots.end(), Slot{0});
    std::shuffle(slots.begin(), slots.end(), prng_);
    slots.resize(static_cast<std::size_t>(count));
    const bool latent = shape.kind == KvKind::kMla;
    const Side k = drawn_side(shape, dtype, count, prng_);
    const Side v = latent ? Side{} : drawn_side(shape, dtype, count, prng_);
    store_sides_in_both<Slot>(layer, slots, k, v);
  }
  template <typename Slot>
  void store_sides_in_both(std::int64_t layer, std::span<const Slot> slots, const Side& k,
                           const Side& v) {
    const bool latent = host_->shape().kind == KvKind::kMla;
    ASSERT_TRUE(host_->store(layer, slots, k.rows, v.rows).ok());
    CudaMemory k_memory;
    CudaMemory v_memory;
    const KvRows k_rows = on_device(k, k_memory);
    const KvRows v_rows = latent ? KvRows{} : on_device(v, v_memory);
    const Status stored = cuda_->store(layer, slots, k_rows, v_rows);
    ASSERT_TRUE(stored.ok()) << stored.error().detail;
  }

  // New rows of the pool's dtype in all slots of layer 0.
  void store_with_loads(int loads) {
    const KvShape& shape = host_->shape();
    const bool latent = shape.kind == KvKind::kMla;
    std::vector<std::int64_t> slots(static_cast<std::size_t>(shape.slots()));
    std::iota(slots.begin(), slots.end(), std::int64_t{0});
    std::shuffle(slots.begin(), slots.end(), prng_);
    const Side k = drawn_side(shape, shape.dtype, shape.slots(), prng_);
    const Side v = latent ? Side{} : drawn_side(shape, shape.dtype, shape.slots(), prng_);
    ASSERT_TRUE(host_->store(0, std::span<const std::int64_t>(slots), k.rows, v.rows).ok());
    const CudaMemory places = upload(slots);
    const CudaMemory k_memory = upload(k.bytes);
    const CudaMemory v_memory = upload(v.bytes);
    const StoreCall call = {
        .target = cuda_->store_target(0),
        .slots = {.wide = places.as<std::int64_t>(), .count = shape.slots()},
        .source_dtype = shape.dtype,
        .k = {k_memory.bytes(), k.rows.row_stride},
        .v = latent ? StoreSource{} : StoreSource{v_memory.bytes(), v.rows.row_stride},
        .loads = loads};
    ASSERT_TRUE(store_rows_on(stream(), call).ok());
    expect_equal_bytes();
  }

  void expect_equal_bytes() {
    for (std::int64_t layer = 0; layer < host_->shape().layers; ++layer) {
      const auto pieces = cuda_->layer_pieces(layer);
      const PagePiece<std::byte>* there = pieces.begin();
      for (const auto& here : host_->layer_pieces(layer)) {
        for (const PageId page : id_range(PageId(0), host_->shape().pages)) {
          const auto bytes = static_cast<std::size_t>(here.bytes);
          const auto got = download<std::byte>(there->of(page), bytes);
          ASSERT_EQ(std::memcmp(got.data(), here.of(page), bytes), 0)
              << "layer " << layer << ", page " << page.value();
        }
        ++there;
      }
    }
  }

  void flip_last_bit(const PagePiece<std::byte>& piece, PageId page) {
    std::byte* const last = piece.of(page) + piece.bytes - 1;
    const PinnedMemory pinned = pinned_bytes(1);
    ASSERT_TRUE(stream().copy_out(pinned.bytes(), last, 1).ok());
    ASSERT_TRUE(stream().synchronize().ok());
    *pinned.bytes() ^= std::byte{1};
    ASSERT_TRUE(stream().copy_in(last, pinned.bytes(), 1).ok());
    ASSERT_TRUE(stream().synchronize().ok());
  }

  void check_shape(const KvShape& shape, DType rows) {
    for (const KvLayout layout : kLayouts) {
      SCOPED_TRACE(std::string(kv_layout_name(layout)) + " " +
                   std::string(dtype_name(shape.dtype)) + " from " + std::string(dtype_name(rows)) +
                   ", page size " + std::to_string(shape.page_size) + ", head_dim " +
                   std::to_string(shape.head_dim));
      make_pools(shape, layout);
      store_in_both<std::int32_t>(0, rows, shape.slots());
      store_in_both<std::int64_t>(1, rows, 1 + prng_.below(shape.slots()));
      expect_equal_bytes();
    }
  }

  Prng prng_{kSeed};
  std::unique_ptr<KvPool> host_;
  std::unique_ptr<CudaPool> cuda_;
};

TEST_F(CudaPools, RowsOfThePoolsDtypeAreCopied) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const KvKind kind : {KvKind::kMha, KvKind::kMla, KvKind::kDoubleSparse}) {
      check_shape(shape_of(kind, dtype, 3, 24), dtype);
      check_shape(shape_of(kind, dtype, 1, 19), dtype);
    }
  }
  check_shape(shape_of(KvKind::kMha, DType::kBF16, 16, 128), DType::kBF16);
  check_shape(shape_of(KvKind::kMla, DType::kBF16, 64, 72), DType::kBF16);
}

// Of more rows and fewer words of a row than a team takes at once, and of the other way round.
TEST_F(CudaPools, RowsAreTheSameHoweverManyLoadsAreOnTheirWay) {
  for (const std::int64_t head_dim : {8, 520}) {
    for (const KvKind kind : {KvKind::kMha, KvKind::kMla}) {
      make_pools(shape_of(kind, DType::kBF16, 9, head_dim), KvLayout::kLayerFirst);
      for (const int loads : {1, 2, 4}) store_with_loads(loads);
    }
  }
}

TEST_F(CudaPools, RowsOfF32AreRoundedAsTheCpuRoundsThem) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    for (const KvKind kind : {KvKind::kMha, KvKind::kMla, KvKind::kDoubleSparse}) {
      check_shape(shape_of(kind, dtype, 3, 40), DType::kF32);
      check_shape(shape_of(kind, dtype, 16, 19), DType::kF32);
    }
    check_shape(shape_of(KvKind::kMla, dtype, 2, 280), DType::kF32);
  }
}

// Rows of whole accesses of 16 bytes, and others.
TEST_F(CudaPools, ScaledRowsHaveTheCpusCodesAndScales) {
  for (const DType dtype : {DType::kFp8E4M3, DType::kFp8E5M2, DType::kInt8}) {
    for (const DType rows : {DType::kF32, DType::kF16, DType::kBF16}) {
      check_shape(shape_of(KvKind::kMha, dtype, 3, 19), rows);
      check_shape(shape_of(KvKind::kMha, dtype, 2, 48), rows);
      check_shape(shape_of(KvKind::kMla, dtype, 16, 72), rows);
    }
    check_shape(shape_of(KvKind::kMha, dtype, 1, 128), DType::kBF16);
    check_shape(shape_of(KvKind::kMla, dtype, 2, 304), DType::kBF16);
  }
}

TEST_F(CudaPools, CodesNextToEachOthersBordersAreTheCpus) {
  struct Codes {
    DType dtype;
    float largest;
  };
  for (const Codes codes :
       {Codes{DType::kFp8E4M3, 448}, Codes{DType::kFp8E5M2, 57344}, Codes{DType::kInt8, 127}}) {
    for (const std::int64_t head_dim : {19, 64}) {
      const KvShape shape = shape_of(KvKind::kMha, codes.dtype, 16, head_dim);
      make_pools(shape, KvLayout::kLayerFirst);
      std::vector<std::int64_t> slots(static_cast<std::size_t>(shape.slots()));
      std::iota(slots.begin(), slots.end(), std::int64_t{0});
      const Side k = border_side(shape, codes.largest, shape.slots(), prng_);
      const Side v = border_side(shape, codes.largest, shape.slots(), prng_);
      store_sides_in_both<std::int64_t>(0, slots, k, v);
      expect_equal_bytes();
    }
  }
}

// So many that a lane has several heads, and the last one has fewer.
TEST_F(CudaPools, ManyHeadsHaveTheCpusCodes) {
  KvShape shape = shape_of(KvKind::kMha, DType::kInt8, 40, 16);
  shape.heads = 211;
  make_pools(shape, KvLayout::kLayerFirst);
  store_in_both<std::int32_t>(0, DType::kBF16, shape.slots());
  expect_equal_bytes();
}

TEST_F(CudaPools, RowsWithoutASlotAreLeftOut) {
  const KvShape shape = shape_of(KvKind::kDoubleSparse, DType::kBF16, 3, 24);
  make_pools(shape, KvLayout::kLayerFirst);
  const std::vector<std::int64_t> slots = {-1, shape.slots(), std::int64_t{1} << 40, -7};
  const CudaMemory places = upload(slots);
  const Side side = drawn_side(shape, DType::kBF16, std::ssize(slots), prng_);
  CudaMemory memory;
  const KvRows rows = on_device(side, memory);
  const DeviceSlots named = {.wide = places.as<std::int64_t>(), .count = std::ssize(slots)};
  ASSERT_TRUE(cuda_->store_on(stream(), 0, named, rows, rows).ok());
  ASSERT_TRUE(stream().synchronize().ok());
  expect_equal_bytes();  // of a pool that nothing was stored to
}

TEST_F(CudaPools, WhatIsWrongIsRefusedWithItsName) {
  const KvShape shape = shape_of(KvKind::kMha, DType::kBF16, 3, 24);
  make_pools(shape, KvLayout::kLayerFirst);
  const Side side = drawn_side(shape, DType::kBF16, 2, prng_);
  CudaMemory memory;
  const KvRows rows = on_device(side, memory);
  const auto refused = [&](std::int64_t layer, std::vector<std::int64_t> slots, const KvRows& k) {
    const Status stored = cuda_->store(layer, std::span<const std::int64_t>(slots), k, rows);
    return stored.ok() ? std::string() : stored.error().detail;
  };
  EXPECT_THAT(refused(2, {0, 1}, rows), testing::HasSubstr("layer 2"));
  EXPECT_THAT(refused(0, {0, 12}, rows), testing::HasSubstr("slots[1] = 12"));
  EXPECT_THAT(refused(0, {0}, rows), testing::HasSubstr("2 rows for 1 slots"));
  EXPECT_THAT(refused(0, {0, 1}, side.rows), testing::HasSubstr("k is on cpu, the pool on cuda"));
  expect_equal_bytes();
}

TEST_F(CudaPools, APageIsCopiedAfterWhatComputes) {
  const KvShape shape = shape_of(KvKind::kMha, DType::kInt8, 3, 19);
  make_pools(shape, KvLayout::kPageFirst);
  store_in_both<std::int32_t>(1, DType::kF32, shape.slots());
  const Side side = drawn_side(shape, DType::kF32, 3, prng_);
  const std::vector<std::int64_t> slots = {3, 4, 5};
  ASSERT_TRUE(host_->store(0, std::span<const std::int64_t>(slots), side.rows, side.rows).ok());
  CudaMemory memory;
  const KvRows rows = on_device(side, memory);
  const CudaMemory places = upload(slots);
  ASSERT_TRUE(
      cuda_->store_on(stream(), 0, {.wide = places.as<std::int64_t>(), .count = 3}, rows, rows)
          .ok());
  ASSERT_TRUE(cuda_->record_use(stream()).ok());
  ASSERT_TRUE(host_->copy_page(PageId(1), PageId(2)).ok());
  ASSERT_TRUE(cuda_->copy_page(PageId(1), PageId(2)).ok());
  expect_equal_bytes();
}

TEST_F(CudaPools, PagesDifferInTheFirstLayerOfWhichABitDoes) {
  for (const KvLayout layout : kLayouts) {
    const KvShape shape = shape_of(KvKind::kDoubleSparse, DType::kBF16, 3, 16);
    make_pools(shape, layout);
    store_in_both<std::int32_t>(1, DType::kF32, shape.slots());
    ASSERT_TRUE(cuda_->copy_page(PageId(1), PageId(2)).ok());
    EXPECT_EQ(*cuda_->first_different_layer(PageId(1), PageId(2)), std::nullopt);
    EXPECT_EQ(*cuda_->first_different_layer(PageId(1), PageId(3)), 1);
    const auto pieces = cuda_->layer_pieces(0);
    for (const PagePiece<std::byte>& piece : pieces) {
      flip_last_bit(piece, PageId(2));
      EXPECT_EQ(*cuda_->first_different_layer(PageId(1), PageId(2)), 0);
      flip_last_bit(piece, PageId(2));
      EXPECT_EQ(*cuda_->first_different_layer(PageId(1), PageId(2)), std::nullopt);
    }
  }
}

TEST_F(CudaPools, AThreadThatDidNothingYetCopiesAndComparesPages) {
  make_pools(shape_of(KvKind::kMha, DType::kBF16, 3, 16), KvLayout::kLayerFirst);
  store_in_both<std::int32_t>(1, DType::kF32, cuda_->shape().slots());
  EXPECT_EQ(*cuda_->first_different_layer(PageId(1), PageId(2)), 1);
  std::thread([&] { EXPECT_TRUE(cuda_->copy_page(PageId(1), PageId(2)).ok()); }).join();
  std::thread([&] {
    EXPECT_EQ(*cuda_->first_different_layer(PageId(1), PageId(2)), std::nullopt);
  }).join();
}

// What was made for the first, graphs say, is not for the second, wherever that lies.
TEST_F(CudaPools, APoolInPlaceOfAnotherHasANumberOfItsOwn) {
  const KvShape shape = shape_of(KvKind::kMha, DType::kBF16, 3, 24);
  make_pools(shape, KvLayout::kLayerFirst);
  const std::int64_t number = cuda_->number();
  cuda_.reset();
  make_pools(shape, KvLayout::kLayerFirst);
  EXPECT_NE(cuda_->number(), number);
}

#ifdef STEMMA_SIMT

// Nor is there a store that begins with memory for its slots and goes on without.
TEST_F(CudaPools, AStoreGoesOnAfterMemoryThatCouldNotBeHad) {
  const KvShape shape = shape_of(KvKind::kMha, DType::kBF16, 3, 24);
  make_pools(shape, KvLayout::kLayerFirst);
  const Side side = drawn_side(shape, DType::kBF16, shape.slots(), prng_);
  CudaMemory memory;
  const KvRows rows = on_device(side, memory);
  std::vector<std::int32_t> slots(static_cast<std::size_t>(shape.slots()));
  std::iota(slots.begin(), slots.end(), 0);
  machine().fail_allocations(1);
  EXPECT_EQ(cuda_->store(0, slots, rows, rows).error().code, ErrorCode::kOutOfMemory);
  ASSERT_TRUE(cuda_->store(0, slots, rows, rows).ok());
  ASSERT_TRUE(host_->store(0, slots, side.rows, side.rows).ok());
  expect_equal_bytes();
}

// Whoever has the page then may write to it at once (I6).
TEST_F(CudaPools, ACopyOfWhichNotAllIsQueuedHasEndedWhenItReturns) {
  const KvShape shape = shape_of(KvKind::kMha, DType::kBF16, 3, 24);
  make_pools(shape, KvLayout::kLayerFirst);
  const std::byte mark{0x5A};
  std::byte* const page = cuda_->layer_pieces(0).begin()->of(PageId(1));
  for (int round = 0; round < 12; ++round) {
    machine().fail_queueing(1, 2);  // the use of pages is waited for, and a piece is copied
    EXPECT_FALSE(cuda_->copy_page(PageId(0), PageId(1)).ok());
    ASSERT_TRUE(stream().fill(page, static_cast<std::uint8_t>(mark), 1).ok());
    ASSERT_TRUE(stream().synchronize().ok());
    ASSERT_TRUE(cuda_->copy_page(PageId(2), PageId(3)).ok());
    EXPECT_EQ(download<std::byte>(page, 1)[0], mark) << "round " << round;
  }
}

#endif

}  // namespace
}  // namespace stemma
