// Host memory's file is the model's, whatever adapters are named beside it.
#include "tier/tier_stack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/temp_directory.h"
#include "pool/pool_fixture.h"
#include "prefix/namespace_examples.h"
#include "tier/map_store_fixture.h"

namespace stemma {
namespace {

TEST(TierStack, AFileOfHostMemoryIsLabelledWithTheModelNotWithItsAdapters) {
  const KvShape shape = {
      .layers = 2, .pages = 4, .page_size = 4, .heads = 2, .head_dim = 8, .dtype = DType::kF16};
  const auto device = make_test_pool(shape, KvLayout::kLayerFirst);
  const auto windowed = make_test_pool(shape, KvLayout::kLayerFirst);
  ThreadPool threads(1);
  const MonotonicClock clock;
  const TempDirectory directory;
  const auto stack = TierStack::open({.host_bytes = 1 << 20, .host_file = directory.file("host")},
                                     *device, {}, threads, clock, windowed.get());
  ASSERT_TRUE(stack.ok()) << to_string(stack.error());
  for (const std::uint8_t named : std::array<std::uint8_t, 3>{1, 2, 3}) {
    (*stack)->describe(digest_of(named), "");
  }
  EXPECT_EQ((*stack)->host_image_or_null()->label.model, digest_of(1));
  EXPECT_EQ((*stack)->windowed_host_image_or_null()->label.model, digest_of(1));
}

TEST(TierStack, WhatIsNoFileOfHostMemoryIsRefusedAtOnce) {
  const KvShape shape = {
      .layers = 2, .pages = 4, .page_size = 4, .heads = 2, .head_dim = 8, .dtype = DType::kF16};
  const auto device = make_test_pool(shape, KvLayout::kLayerFirst);
  const TempDirectory directory;
  const TierStack::Options options = {.host_bytes = 1 << 20, .host_file = directory.file("host")};
  std::ofstream(options.host_file + ".windows") << "somebody's";
  ThreadPool threads(1);
  const MonotonicClock clock;
  EXPECT_TRUE(TierStack::open(options, *device, {}, threads, clock).ok());
  const auto windowed = TierStack::open(options, *device, {}, threads, clock, device.get());
  ASSERT_FALSE(windowed.ok());
  EXPECT_EQ(windowed.error().code, ErrorCode::kInvalidArgument);
}

// Pages of one pool are never taken for the other's, nor packed ones for plain ones.
TEST(TierStack, EachFileOfHostMemorySaysWhatItsPagesMean) {
  KvShape shape = {
      .layers = 2, .pages = 4, .page_size = 4, .heads = 2, .head_dim = 8, .dtype = DType::kF16};
  const auto device = make_test_pool(shape, KvLayout::kLayerFirst);
  shape.layers = 5;
  const auto windowed = make_test_pool(shape, KvLayout::kLayerFirst);
  ThreadPool threads(1);
  const MonotonicClock clock;
  const TempDirectory directory;
  const auto stack = TierStack::open(
      {.host_bytes = 1 << 20, .codec = PageCodec::kInt8, .host_file = directory.file("host")},
      *device, {}, threads, clock, windowed.get());
  ASSERT_TRUE(stack.ok()) << to_string(stack.error());
  const HostImage& full = *(*stack)->host_image_or_null();
  const HostImage& other = *(*stack)->windowed_host_image_or_null();
  EXPECT_EQ(full.label.format.layers, 2);
  EXPECT_EQ(other.label.format.layers, 5);
  EXPECT_EQ(full.label.format.codec, "int8");
  EXPECT_EQ(other.label.format.codec, "int8");
  EXPECT_EQ(&full.pages, &(*stack)->host());
  EXPECT_EQ(&other.pages, (*stack)->windowed_host_or_null());
  EXPECT_NE(full.path, other.path);
}

TEST(TierStack, HostMemoryHoldsAPageOfEachKindAndNoMoreBytesThanItMay) {
  KvShape shape = {
      .layers = 2, .pages = 4, .page_size = 4, .heads = 2, .head_dim = 8, .dtype = DType::kF16};
  const auto device = make_test_pool(shape, KvLayout::kLayerFirst);
  shape.layers = 5;
  const auto windowed = make_test_pool(shape, KvLayout::kLayerFirst);
  const std::int64_t both = 2 * device->layer_bytes() + 5 * windowed->layer_bytes();
  ThreadPool threads(1);
  const MonotonicClock clock;
  const auto open = [&](std::int64_t host_bytes) {
    return TierStack::open({.host_bytes = host_bytes}, *device, {}, threads, clock, windowed.get());
  };
  const auto too_few = open(both - 1);
  ASSERT_FALSE(too_few.ok());
  EXPECT_EQ(too_few.error().code, ErrorCode::kInvalidArgument);
  for (const std::int64_t pages : {1, 2, 7}) {
    for (const std::int64_t spare : {std::int64_t{0}, both - 1}) {
      const auto stack = open(pages * both + spare);
      ASSERT_TRUE(stack.ok()) << to_string(stack.error());
      EXPECT_EQ((*stack)->host_pages(), pages);
      EXPECT_EQ((*stack)->host_windowed_pages(), pages);
    }
  }
}

TEST(TierStack, StoresKeepTheirOrderAndHearWhosePagesTheseAre) {
  class HearingStore final : public MapStore {
   public:
    explicit HearingStore(std::vector<std::string>& heard) : heard_(heard) {}
    void describe(const NamespaceDigest&, std::string_view description) override {
      heard_.emplace_back(description);
    }

   private:
    std::vector<std::string>& heard_;
  };
  const KvShape shape = {
      .layers = 2, .pages = 4, .page_size = 4, .heads = 2, .head_dim = 8, .dtype = DType::kF16};
  const auto device = make_test_pool(shape, KvLayout::kLayerFirst);
  std::vector<std::string> heard;
  std::vector<std::unique_ptr<PageStore>> stores;
  stores.push_back(std::make_unique<HearingStore>(heard));
  stores.push_back(std::make_unique<HearingStore>(heard));
  const std::vector<PageStore*> given = {stores[0].get(), stores[1].get()};
  ThreadPool threads(1);
  const MonotonicClock clock;
  const auto stack =
      TierStack::open({.host_bytes = 1 << 20}, *device, std::move(stores), threads, clock);
  ASSERT_TRUE(stack.ok()) << to_string(stack.error());
  EXPECT_TRUE(std::ranges::equal((*stack)->stores(), given));
  (*stack)->describe(digest_of(1), "model=tiny");
  EXPECT_EQ(heard, std::vector<std::string>(2, "model=tiny"));
}

// The last of two to end would write over the other's, with what that was asked to forget.
TEST(TierStack, AFileOfHostMemoryIsOneLifesAtATime) {
  const KvShape shape = {
      .layers = 2, .pages = 4, .page_size = 4, .heads = 2, .head_dim = 8, .dtype = DType::kF16};
  const auto device = make_test_pool(shape, KvLayout::kLayerFirst);
  const TempDirectory directory;
  const TierStack::Options options = {.host_bytes = 1 << 20, .host_file = directory.file("host")};
  ThreadPool threads(1);
  const MonotonicClock clock;
  auto first = TierStack::open(options, *device, {}, threads, clock);
  ASSERT_TRUE(first.ok()) << to_string(first.error());
  EXPECT_EQ(to_string(TierStack::check_host_files(options, /*windowed=*/false).error()),
            "invalid_argument: " + options.host_file + ".lock: another process has this host file");
  EXPECT_FALSE(TierStack::open(options, *device, {}, threads, clock).ok());
  first->reset();
  EXPECT_TRUE(TierStack::open(options, *device, {}, threads, clock).ok());
}

// Whichever kind there is too little memory for: one would be of no use without the other.
TEST(TierStack, WhereLessIsHadPagesOfBothKindsBecomeFewer) {
  KvShape shape = {
      .layers = 2, .pages = 4, .page_size = 4, .heads = 2, .head_dim = 8, .dtype = DType::kF16};
  const auto device = make_test_pool(shape, KvLayout::kLayerFirst);
  ThreadPool threads(1);
  const MonotonicClock clock;
  for (const auto& [layers, pages] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 4}, {8, 4}, {1, 2}, {8, 2}}) {
    SCOPED_TRACE(testing::Message() << layers << " layers, " << pages << " pages");
    shape.layers = layers;
    shape.pages = pages;
    const auto windowed = make_test_pool(shape, KvLayout::kLayerFirst);
    std::size_t limit_bytes = std::numeric_limits<std::size_t>::max();
    std::size_t most_bytes = 0;
    const auto allocate = [&](std::size_t size_bytes) -> Result<Buffer> {
      if (size_bytes >= limit_bytes) return Error{ErrorCode::kOutOfMemory, "injected", ENOMEM};
      most_bytes = std::max(most_bytes, size_bytes);
      return Buffer::allocate(size_bytes);
    };
    const auto open = [&] {
      return TierStack::open({.host_bytes = 1 << 20, .allocate = allocate}, *device, {}, threads,
                             clock, windowed.get());
    };
    const auto whole = open();
    ASSERT_TRUE(whole.ok()) << to_string(whole.error());
    limit_bytes = most_bytes;
    const auto less = open();
    ASSERT_TRUE(less.ok()) << to_string(less.error());
    EXPECT_EQ((*less)->host_pages(), (*whole)->host_pages() / 2);
    EXPECT_EQ((*less)->host_windowed_pages(), (*less)->host_pages() * pages / 4);
    limit_bytes = 1;
    EXPECT_EQ(open().error().code, ErrorCode::kOutOfMemory);
  }
}

}  // namespace
}  // namespace stemma
