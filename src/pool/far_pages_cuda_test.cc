// Pages that lie more than 2^31 elements, and bytes, behind the first, as most do in the pools of a
// GPU: what is stored, copied, backed up and promoted there is what a small pool in host memory
// has. On the emulated GPU only what is touched takes memory.
#include <string>

#include "pool/cuda_page_mover.h"
#include "pool/cuda_pool_fixture.h"
#include "pool/page_moves_fixture.h"

namespace stemma {
namespace {

constexpr std::int64_t kPages = 3;  // that are looked at

class Unheard final : public LayerArrivals {
 public:
  void queued(std::int64_t) override {}
  void arrived(std::int64_t, bool right) override { EXPECT_TRUE(right); }
};

// Of a few pages.
KvShape shape_of(KvKind kind, DType dtype, std::int64_t page_size) {
  KvShape shape = {.layers = 2,
                   .pages = 2 * kPages,
                   .page_size = page_size,
                   .heads = 8,
                   .head_dim = 128,
                   .dtype = dtype,
                   .kind = kind};
  if (kind == KvKind::kDoubleSparse) shape.label_channels = 16;
  if (kind != KvKind::kMla) return shape;
  shape.heads = 1;
  shape.head_dim = 576;
  shape.latent_dim = 512;
  return shape;
}

class FarPages : public CudaPoolFixture {
 protected:
  simt::Machine::Options machine_options() const override {
    simt::Machine::Options options = CudaPoolFixture::machine_options();
    options.memory_bytes = std::size_t{64} << 30;
    return options;
  }

  // The twin has the pages that are looked at; the last ones of the pool are these.
  void make(const KvShape& few, KvLayout layout) {
    KvShape shape = few;
    shape.pages += (std::int64_t{1} << 31) / (few.page_size * few.row_elements());
    first_ = shape.pages - few.pages;
    cuda_.reset();
    auto cuda = CudaPool::create(device(), shape, layout, first_channels(shape));
    if (!cuda.ok() && cuda.error().code == ErrorCode::kOutOfMemory) {
      GTEST_SKIP() << "this GPU has not " << to_string(cuda.error());
    }
    ASSERT_TRUE(cuda.ok()) << to_string(cuda.error());
    cuda_ = std::move(cuda).value();
    ThreadPool threads(1);
    twin_ = make_kv_pool(few, layout, threads, first_channels(few)).value();
    fill_randomly(*twin_, prng_);
    for (const PageId page : id_range(PageId(0), kPages)) {
      upload_page(far(page.value()), twin_image(page));
    }
  }

  PageId far(std::int64_t page) const { return PageId(static_cast<std::int32_t>(first_ + page)); }

  // The last rows of a page, of every layer.
  template <typename Slot>
  void store(std::int64_t page) {
    const KvShape& shape = twin_->shape();
    const bool latent = shape.kind == KvKind::kMla;
    std::vector<Slot> slots;
    std::vector<Slot> far_slots;
    for (std::int64_t slot = (page + 1) * shape.page_size; std::ssize(slots) < 3;) {
      slots.push_back(static_cast<Slot>(--slot));
      far_slots.push_back(static_cast<Slot>(first_ * shape.page_size + slot));
    }
    for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
      const DrawnRows k(shape, std::ssize(slots), prng_);
      const DrawnRows v(shape, std::ssize(slots), prng_);
      const CudaMemory k_memory = upload(k.values);
      const CudaMemory v_memory = upload(v.values);
      const auto there = [](KvRows rows, const CudaMemory& memory) {
        rows.elements = memory.bytes();
        rows.device = DeviceKind::kCuda;
        return rows;
      };
      const KvRows none;
      ASSERT_TRUE(
          twin_->store(layer, std::span<const Slot>(slots), k.view, latent ? none : v.view).ok());
      const Status stored =
          cuda_->store(layer, std::span<const Slot>(far_slots), there(k.view, k_memory),
                       latent ? none : there(v.view, v_memory));
      ASSERT_TRUE(stored.ok()) << to_string(stored.error());
    }
  }

  void check_stores() {
    store<std::int64_t>(0);
    store<std::int32_t>(kPages - 1);
    for (const PageId page : id_range(PageId(0), kPages)) {
      EXPECT_TRUE(cuda_image(far(page.value())) == twin_image(page)) << "page " << page.value();
    }
  }

  void check_copy() {
    ASSERT_TRUE(cuda_->copy_page(far(1), far(kPages)).ok());
    EXPECT_TRUE(cuda_image(far(kPages)) == twin_image(PageId(1)));
  }

  // Down to host memory, and up again to other pages.
  void check_moves(KvLayout host_layout) {
    const auto host = make_host(kPages, host_layout);
    const auto mover = CudaPageMover::open(*cuda_, *host).value();
    std::vector<PageMove> down;
    std::vector<PageMove> up;
    for (std::int32_t page = 0; page < kPages; ++page) {
      const PageId below(page);
      down.push_back({.from = far(page), .to = below, .key = key_of(page)});
      up.push_back({.from = below, .to = far(kPages + page), .key = key_of(page)});
    }
    mover->back_up(down, kAlways);
    EXPECT_THAT(verdicts(down), testing::Each(MoveVerdict::kDone));
    Unheard unheard;
    mover->promote(up, kAlways, unheard);
    EXPECT_THAT(verdicts(up), testing::Each(MoveVerdict::kDone));
    for (std::int32_t page = 0; page < kPages; ++page) {
      EXPECT_TRUE(cuda_image(far(kPages + page)) == twin_image(PageId(page))) << "page " << page;
    }
  }

  void check(const KvShape& few) {
    for (const KvLayout layout : kAllLayouts) {
      SCOPED_TRACE(std::string(kv_layout_name(layout)));
      make(few, layout);
      if (HasFatalFailure() || IsSkipped()) return;
      check_stores();
      check_copy();
      for (const KvLayout host : kAllLayouts) check_moves(host);
    }
  }

  std::int64_t first_ = 0;
};

TEST_F(FarPages, OfKeysAndValues) {
  check(shape_of(KvKind::kMha, DType::kBF16, 4));
}

TEST_F(FarPages, ThatCopyEnginesMove) {
  check(shape_of(KvKind::kMha, DType::kBF16, 128));
}

TEST_F(FarPages, OfEightBitsWithTheirScales) {
  check(shape_of(KvKind::kMha, DType::kInt8, 4));
}

TEST_F(FarPages, OfLatentRows) {
  check(shape_of(KvKind::kMla, DType::kBF16, 4));
}

TEST_F(FarPages, WithLabels) {
  check(shape_of(KvKind::kDoubleSparse, DType::kBF16, 4));
}

}  // namespace
}  // namespace stemma
