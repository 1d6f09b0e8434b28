// ServedTiers below the pool of a GPU: every tier that flags name.
#include "base/clock.h"
#include "engine/served_tiers.h"
#include "pool/cuda_pool_fixture.h"

namespace stemma {
namespace {

class CudaServedTiers : public CudaPoolFixture {
 protected:
  Result<std::unique_ptr<LowerTiers>> open(const ServedTierOptions& options) {
    const KvShape shape = {
        .layers = 2, .pages = 4, .page_size = 4, .heads = 2, .head_dim = 8, .dtype = DType::kBF16};
    make_pools(shape, KvLayout::kLayerFirst);
    ThreadPool threads(1);
    return open_served_tiers(options, *cuda_, nullptr, threads, clock_);
  }

  FakeClock clock_;
};

TEST_F(CudaServedTiers, HostMemoryAndADiskAreOpened) {
  ServedTierOptions options;
  options.host_bytes = 1 << 20;
  options.disk_directory = testing::TempDir() + "cuda_served_tiers";
  const auto tiers = open(options);
  ASSERT_TRUE(tiers.ok()) << tiers.error().detail;
  EXPECT_GT((*tiers)->host_pages(), 0);
  EXPECT_EQ((*tiers)->stores().size(), 1u);
}

TEST_F(CudaServedTiers, EncodedPagesTakeLessRoomThereToo) {
  ServedTierOptions options;
  options.host_bytes = 1 << 20;
  std::int64_t pages = 0;
  for (const char* codec : {"plain", "int8", "int4"}) {
    options.codec = codec;
    const auto tiers = open(options);
    ASSERT_TRUE(tiers.ok()) << tiers.error().detail;
    EXPECT_GT((*tiers)->host_pages(), pages) << codec;
    pages = (*tiers)->host_pages();
  }
}

}  // namespace
}  // namespace stemma
