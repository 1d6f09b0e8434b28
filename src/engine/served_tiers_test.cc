// What flags make of the tiers below a pool: each rank keeps its own, the first remembers purges
// for all, and packed pages take less room.
#include "engine/served_tiers.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/temp_directory.h"
#include "pool/kv_pool_factory.h"

namespace stemma {
namespace {

class ServedTiersTest : public testing::Test {
 protected:
  ServedTiersTest() {
    const KvShape shape = {
        .layers = 2, .pages = 4, .page_size = 4, .heads = 2, .head_dim = 8, .dtype = DType::kBF16};
    device_ = std::move(make_kv_pool(shape, KvLayout::kLayerFirst, threads_)).value();
    options_.host_bytes = 1 << 20;
  }

  std::unique_ptr<LowerTiers> open() {
    auto tiers = open_served_tiers(options_, *device_, nullptr, threads_, clock_);
    EXPECT_TRUE(tiers.ok()) << to_string(tiers.error());
    return tiers.ok() ? std::move(tiers).value() : nullptr;
  }
  bool exists(const std::string& name) const {
    return std::filesystem::exists(directory_.file(name));
  }

  TempDirectory directory_;
  ThreadPool threads_{1};
  FakeClock clock_;
  std::unique_ptr<KvPool> device_;
  ServedTierOptions options_;
};

// Both may be open at once: neither is in the other's way.
TEST_F(ServedTiersTest, RanksHaveDirectoriesOfTheirOwn) {
  options_.disk_directory = directory_.file("disk");
  options_.ranks = 2;
  const auto first = open();
  options_.rank = 1;
  const auto second = open();
  EXPECT_TRUE(exists("disk/rank0of2"));
  EXPECT_TRUE(exists("disk/rank1of2"));
}

TEST_F(ServedTiersTest, TheFirstRankRemembersPurgesForAll) {
  options_.disk_directory = directory_.file("disk");
  options_.ranks = 2;
  for (const int rank : {0, 1}) {
    options_.rank = rank;
    EXPECT_EQ(open()->purge_file_or_null() != nullptr, rank == 0) << rank;
  }
  EXPECT_TRUE(exists("disk/purges"));
}

TEST_F(ServedTiersTest, PurgesAreRememberedWhereThatIsAskedOrThereIsADisk) {
  EXPECT_EQ(open()->purge_file_or_null(), nullptr);
  options_.purge_file = directory_.file("remembered");
  EXPECT_NE(open()->purge_file_or_null(), nullptr);
  EXPECT_TRUE(exists("remembered"));
}

TEST_F(ServedTiersTest, PackedPagesTakeLessRoom) {
  std::int64_t pages = 0;
  for (const char* codec : {"plain", "int8", "int4"}) {
    options_.codec = codec;
    const auto tiers = open();
    EXPECT_GT(tiers->host_pages(), pages) << codec;
    pages = tiers->host_pages();
  }
}

}  // namespace
}  // namespace stemma
