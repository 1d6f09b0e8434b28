// CudaKvPool: an engine that knows no more than stemma/cuda_pool.h stores rows on streams of its
// own, and its pages go down after that.
#include <cstring>
#include <vector>

#include "pool/cuda_pool_fixture.h"
#include "pool/page_mover.h"
#include "pool/page_moves_fixture.h"
#include "stemma/cuda_pool.h"

namespace stemma {
namespace {

KvShape small_shape() {
  return {
      .layers = 2, .pages = 8, .page_size = 4, .heads = 2, .head_dim = 16, .dtype = DType::kF32};
}

class EnginesPool : public CudaPoolFixture {
 protected:
  void SetUp() override {
    CudaPoolFixture::SetUp();
    if (IsSkipped()) return;
    auto pool = open_cuda_pool(small_shape());
    ASSERT_TRUE(pool.ok()) << pool.error().detail;
    pool_ = std::move(pool).value();
  }
  void TearDown() override {
    pool_.reset();
    CudaPoolFixture::TearDown();
  }

  // Rows on the device whose element i is first + i.   [count, heads, head_dim]
  CudaMemory rows_from(float first, std::int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count * small_shape().row_elements()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<float>(i);
    return upload(values);
  }
  static KvRows named(const CudaMemory& memory, std::int64_t count) {
    return {.elements = memory.bytes(),
            .device = DeviceKind::kCuda,
            .rows = count,
            .heads = small_shape().heads,
            .head_dim = small_shape().head_dim,
            .row_stride = small_shape().row_elements()};
  }
  // The row of K (`side` 0) or V of a slot.
  std::vector<float> row_at(std::int64_t layer, int side, std::int64_t slot) {
    const KvLayerView view = pool_->layer_view(layer);
    const auto* const begin = static_cast<const float*>(side == 0 ? view.k : view.v);
    return download<float>(begin + (slot / view.page_size) * view.page_stride +
                               (slot % view.page_size) * view.token_stride,
                           static_cast<std::size_t>(small_shape().row_elements()));
  }

  std::unique_ptr<CudaKvPool> pool_;
};

// An event of a recording would draw whoever waits for it into that.
TEST_F(EnginesPool, IsNotSaidToBeUsedByWhatIsRecorded) {
  ASSERT_TRUE(stream().begin_recording().ok());
  const Status used = pool_->record_use(stream().raw());
  ASSERT_TRUE(stream().end_recording().ok());
  EXPECT_EQ(used.error().code, ErrorCode::kUnsupported);
  EXPECT_TRUE(pool_->record_use(stream().raw()).ok());
}

TEST_F(EnginesPool, TakesRowsFromAStreamOfTheEngines) {
  const std::vector<std::int64_t> slots = {5, 30, -1};
  const CudaMemory places = upload(slots);
  const CudaMemory k = rows_from(1, 3);
  const CudaMemory v = rows_from(1'000, 3);
  const std::span on_device(places.as<const std::int64_t>(), slots.size());
  ASSERT_TRUE(pool_->store_on(stream().raw(), 1, on_device, named(k, 3), named(v, 3)).ok());

  const auto each = static_cast<std::size_t>(small_shape().row_elements());
  EXPECT_EQ(row_at(1, 0, 5), download<float>(k.bytes(), each));
  EXPECT_EQ(row_at(1, 0, 30), download<float>(k.as<float>() + each, each));
  EXPECT_EQ(row_at(1, 1, 30), download<float>(v.as<float>() + each, each));
  EXPECT_EQ(row_at(0, 0, 5), std::vector<float>(each, 0.0f)) << "another layer";
  EXPECT_TRUE(stream().synchronize().ok()) << "the stream is still the engine's";
}

TEST_F(EnginesPool, TakesNarrowSlotsAndCopiesPages) {
  const std::vector<std::int32_t> slots = {4, 5, 6, 7};
  const CudaMemory places = upload(slots);
  const CudaMemory rows = rows_from(7, 4);
  const std::span on_device(places.as<const std::int32_t>(), slots.size());
  ASSERT_TRUE(pool_->store_on(stream().raw(), 0, on_device, named(rows, 4), named(rows, 4)).ok());
  ASSERT_TRUE(pool_->copy_page_on(stream().raw(), PageId(1), PageId(6)).ok());
  EXPECT_EQ(row_at(0, 1, 26), row_at(0, 1, 6));
  EXPECT_NE(row_at(0, 1, 26), row_at(0, 1, 7));
}

TEST_F(EnginesPool, CopiesPagesDownAfterTheUseThatWasRecorded) {
  HostPoolOptions options;
  options.pages = 2;
  options.layers = small_shape().layers;
  options.layer_bytes = pool_->layer_bytes();
  ThreadPool threads(1);
  const auto host = HostPool::create(options, threads).value();
  const auto mover = pool_->make_mover(*host).value();
  const std::vector<std::int32_t> slots = {12, 13, 14, 15};
  const CudaMemory places = upload(slots);
  const CudaMemory rows = rows_from(7, 4);
  const std::span on_device(places.as<const std::int32_t>(), slots.size());
  ASSERT_TRUE(pool_->store_on(stream().raw(), 0, on_device, named(rows, 4), named(rows, 4)).ok());
  ASSERT_TRUE(pool_->record_use(stream().raw()).ok());

  std::vector<PageMove> down = moves_between({3}, {1});
  mover->back_up(down, kAlways);
  ASSERT_THAT(verdicts(down), testing::ElementsAre(MoveVerdict::kDone));
  const auto image = host->layer_image(PageId(1), 0);
  float last = 0;
  std::memcpy(&last, image.data() + image.size() - sizeof(last), sizeof(last));
  EXPECT_EQ(last, 7.0f + static_cast<float>(4 * small_shape().row_elements() - 1));
}

TEST_F(EnginesPool, NamesWhatItIsNotOpenedFor) {
  EXPECT_EQ(open_cuda_pool(small_shape(), KvLayout::kLayerFirst, cuda_devices()).error().code,
            ErrorCode::kNotFound);
  KvShape sparse = small_shape();
  sparse.kind = KvKind::kDoubleSparse;
  EXPECT_EQ(open_cuda_pool(sparse).error().code, ErrorCode::kUnsupported);
  KvShape empty = small_shape();
  empty.page_size = 0;
  EXPECT_EQ(open_cuda_pool(empty).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(pool_->ordinal(), 0);
  EXPECT_EQ(pool_->device(), DeviceKind::kCuda);
}

}  // namespace
}  // namespace stemma
