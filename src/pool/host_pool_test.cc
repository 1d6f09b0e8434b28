// HostPool: pages go to the host and come back byte for byte between all layouts, whole or layer by
// layer; a page that does not hold the key asked for, a flipped bit, a cancelled call and memory
// that cannot be had are reported, and nothing else changes. Faults: rows 3 (host) and 11
// (docs/FAULTS.md).
#include "pool/host_pool.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "base/heap_counter.h"
#include "base/memory_room.h"
#include "pool/page_moves_fixture.h"
#include "pool/pool_fixture.h"
#include "stemma/log.h"

namespace stemma {
namespace {

constexpr std::uint64_t kSeed = 20260303;
constexpr KvLayout kLayouts[] = {KvLayout::kLayerFirst, KvLayout::kPageFirst};

KvShape small_shape(std::int64_t page_size = 16) {
  return {.layers = 3,
          .pages = 6,
          .page_size = page_size,
          .heads = 2,
          .head_dim = 20,
          .dtype = DType::kBF16};
}

// Half a MiB a layer: a call moves more than caches hold, and asks every other layer.
KvShape large_shape() {
  return {
      .layers = 4, .pages = 4, .page_size = 64, .heads = 8, .head_dim = 256, .dtype = DType::kBF16};
}

std::unique_ptr<HostPool> make_host(const KvPool& device, std::int64_t pages, KvLayout layout) {
  ThreadPool threads(1);
  HostPoolOptions options;
  options.pages = pages;
  options.layers = device.shape().layers;
  options.layer_bytes = device.layer_bytes();
  options.layout = layout;
  auto host = HostPool::create(options, threads);
  EXPECT_TRUE(host.ok());
  return std::move(host).value();
}

std::vector<std::vector<std::byte>> all_images(const KvPool& pool) {
  std::vector<std::vector<std::byte>> images;
  for (const PageId page : id_range(PageId(0), pool.shape().pages)) {
    images.push_back(expected_image(pool, page));
  }
  return images;
}

void round_trip(const KvShape& shape, KvLayout from_layout, KvLayout host_layout,
                KvLayout to_layout, Prng& prng) {
  const auto from = make_test_pool(shape, from_layout);
  const auto to = make_test_pool(shape, to_layout);
  fill_randomly(*from, prng);
  fill_randomly(*to, prng);
  const auto host = make_host(*from, 5, host_layout);
  std::vector<PageMove> down = moves_between({3, 0, 2}, {1, 4, 0});
  host->backup(*from, down, kAlways);
  EXPECT_THAT(verdicts(down), testing::Each(MoveVerdict::kDone));
  for (const PageMove& move : down) {
    EXPECT_TRUE(host->holds(move.to, move.key));
    for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
      EXPECT_THAT(host->layer_image(move.to, layer),
                  testing::ElementsAreArray(expected_layer(*from, move.from, layer)));
    }
  }
  auto expected = all_images(*to);
  std::vector<PageMove> up = moves_back(down, {2, 1, 3});
  host->promote(*to, up, {0, shape.layers}, kAlways);
  EXPECT_THAT(verdicts(up), testing::Each(MoveVerdict::kDone));
  for (std::size_t i = 0; i < 3; ++i) {
    expected[up[i].to.index()] = expected_image(*from, down[i].from);
  }
  EXPECT_TRUE(all_images(*to) == expected);
}

TEST(HostPool, PagesGoAndComeBackBetweenAllLayouts) {
  SCOPED_TRACE(kSeed);
  Prng prng(kSeed);
  for (const std::int64_t page_size : {1, 16}) {
    for (const KvLayout from : kLayouts) {
      for (const KvLayout host : kLayouts) {
        for (const KvLayout to : kLayouts) round_trip(small_shape(page_size), from, host, to, prng);
      }
    }
  }
}

TEST(HostPool, LargeCallsToo) {
  SCOPED_TRACE(kSeed);
  Prng prng(kSeed);
  KvShape shape = large_shape();
  shape.layers = 2;
  round_trip(shape, KvLayout::kLayerFirst, KvLayout::kPageFirst, KvLayout::kPageFirst, prng);
  shape.head_dim = 255;  // pieces that do not begin at a line
  shape.page_size = 63;
  round_trip(shape, KvLayout::kPageFirst, KvLayout::kLayerFirst, KvLayout::kLayerFirst, prng);
}

// Pages 0 … 5 of a device, backed up to pages 5 … 0 of a host pool.
class HostPoolOfSix : public testing::Test {
 protected:
  void SetUp() override {
    fill_randomly(*device_, prng_);
    host_ = make_host(*device_, 6, KvLayout::kPageFirst);
    host_->backup(*device_, down_, kAlways);
    ASSERT_THAT(verdicts(down_), testing::Each(MoveVerdict::kDone));
  }
  std::vector<PageMove> all_up() { return moves_back(down_, {0, 1, 2, 3, 4, 5}); }

  Prng prng_{kSeed};
  std::unique_ptr<MhaPool> device_ = make_test_pool(small_shape(), KvLayout::kLayerFirst);
  std::vector<PageMove> down_ = moves_between({0, 1, 2, 3, 4, 5}, {5, 4, 3, 2, 1, 0});
  std::unique_ptr<HostPool> host_;
};

TEST_F(HostPoolOfSix, LayersComeOneAfterAnother) {
  const auto to = make_test_pool(small_shape(), KvLayout::kLayerFirst);
  std::vector<PageMove> up = all_up();
  for (std::int64_t layer = 0; layer < 3; ++layer) {
    host_->promote(*to, up, {layer, layer + 1}, kAlways);
    EXPECT_THAT(verdicts(up), testing::Each(MoveVerdict::kDone));
    for (const PageId page : id_range(PageId(0), 6)) {
      EXPECT_EQ(expected_layer(*to, page, layer), expected_layer(*device_, page, layer));
    }
  }
}

TEST_F(HostPoolOfSix, APageAnswersForItsKeyAlone) {
  const auto to = make_test_pool(small_shape(), KvLayout::kLayerFirst);
  fill_randomly(*to, prng_);
  const auto before = all_images(*to);
  std::vector<PageMove> up = all_up();
  host_->forget(up[1].from);
  up[2].key = key_of(77);
  EXPECT_FALSE(host_->holds(up[1].from, up[1].key));
  EXPECT_FALSE(host_->holds(up[1].from, PageKey())) << "it holds nothing";
  host_->promote(*to, up, {0, 3}, kAlways);
  EXPECT_EQ(up[0].verdict, MoveVerdict::kDone);
  EXPECT_EQ(up[1].verdict, MoveVerdict::kStale);
  EXPECT_EQ(up[2].verdict, MoveVerdict::kStale);
  EXPECT_EQ(up[3].verdict, MoveVerdict::kDone);
  EXPECT_EQ(expected_image(*to, PageId(1)), before[1]);
  EXPECT_EQ(expected_image(*to, PageId(2)), before[2]);
}

TEST_F(HostPoolOfSix, APageThatIsBackedUpAgainHoldsTheNewKeyOnly) {
  std::vector<PageMove> again = {{PageId(0), down_[3].to, key_of(50)}};
  host_->backup(*device_, again, kAlways);
  EXPECT_FALSE(host_->holds(down_[3].to, down_[3].key));
  EXPECT_TRUE(host_->holds(down_[3].to, key_of(50)));
}

// Row 3: a bit that flips in the host pool is never served.
TEST_F(HostPoolOfSix, EveryFlippedBitIsReported) {
  SCOPED_TRACE(kSeed);
  constexpr int kFlips = 1'000'000;
  const auto to = make_test_pool(small_shape(), KvLayout::kLayerFirst);
  const std::int64_t layer_bits = 8 * device_->layer_bytes();
  std::int64_t served = 0;
  for (int flip = 0; flip < kFlips; ++flip) {
    const auto victim = static_cast<std::size_t>(prng_.below(6));
    const std::int64_t layer = prng_.below(3);
    const std::int64_t bit = prng_.below(layer_bits);
    std::byte& byte =
        host_->layer_image(down_[victim].to, layer)[static_cast<std::size_t>(bit / 8)];
    byte ^= static_cast<std::byte>(1 << (bit % 8));
    std::vector<PageMove> up = {{down_[victim].to, PageId(0), down_[victim].key}};
    host_->promote(*to, up, {0, 3}, kAlways);
    if (up[0].verdict != MoveVerdict::kCorrupt) ++served;
    byte ^= static_cast<std::byte>(1 << (bit % 8));
  }
  EXPECT_EQ(served, 0);
  std::vector<PageMove> up = all_up();
  host_->promote(*to, up, {0, 3}, kAlways);
  EXPECT_THAT(verdicts(up), testing::Each(MoveVerdict::kDone));
}

TEST_F(HostPoolOfSix, AFlippedBitSpoilsItsPageFromItsLayerOn) {
  const auto to = make_test_pool(small_shape(), KvLayout::kLayerFirst);
  host_->layer_image(down_[4].to, 1)[7] ^= std::byte{4};
  std::vector<PageMove> up = all_up();
  host_->promote(*to, up, {0, 1}, kAlways);
  EXPECT_EQ(up[4].verdict, MoveVerdict::kDone);
  host_->promote(*to, up, {1, 2}, kAlways);
  EXPECT_EQ(up[4].verdict, MoveVerdict::kCorrupt);
  host_->promote(*to, up, {2, 3}, kAlways);
  for (std::size_t i = 0; i < 6; ++i) {
    const bool spoilt = i == 4;
    EXPECT_EQ(up[i].verdict, spoilt ? MoveVerdict::kCorrupt : MoveVerdict::kDone);
    EXPECT_EQ(expected_image(*to, up[i].to) == expected_image(*device_, up[i].to), !spoilt);
  }
}

TEST_F(HostPoolOfSix, ImagesGoOutAndComeIn) {
  std::vector<std::byte> image(static_cast<std::size_t>(host_->page_bytes()));
  std::vector<std::uint32_t> sums(3);
  EXPECT_EQ(host_->read_image(down_[2].to, key_of(9), image, sums), MoveVerdict::kStale);
  EXPECT_EQ(host_->read_image(down_[2].to, down_[2].key, image, sums), MoveVerdict::kDone);
  EXPECT_EQ(image, expected_image(*device_, PageId(2)));
  EXPECT_EQ(sums[1], crc32c(expected_layer(*device_, PageId(2), 1)));

  const auto other = make_host(*device_, 2, KvLayout::kLayerFirst);
  EXPECT_EQ(other->write_image(PageId(1), key_of(30), image, sums), MoveVerdict::kDone);
  const auto to = make_test_pool(small_shape(), KvLayout::kPageFirst);
  std::vector<PageMove> up = {{PageId(1), PageId(5), key_of(30)}};
  other->promote(*to, up, {0, 3}, kAlways);
  EXPECT_EQ(up[0].verdict, MoveVerdict::kDone);
  EXPECT_EQ(expected_image(*to, PageId(5)), image);

  image[image.size() - 1] ^= std::byte{1};
  EXPECT_EQ(other->write_image(PageId(1), key_of(31), image, sums), MoveVerdict::kCorrupt);
  EXPECT_FALSE(other->holds(PageId(1), key_of(30)));
  EXPECT_FALSE(other->holds(PageId(1), key_of(31)));
  host_->layer_image(down_[2].to, 0)[0] ^= std::byte{1};
  EXPECT_EQ(host_->read_image(down_[2].to, down_[2].key, image, sums), MoveVerdict::kCorrupt);
}

// Stops every call at every place where it asks.
TEST(HostPool, ACancelledCallLeavesWholePagesOrNothing) {
  SCOPED_TRACE(kSeed);
  Prng prng(kSeed);
  const KvShape shape = large_shape();
  const auto device = make_test_pool(shape, KvLayout::kLayerFirst);
  fill_randomly(*device, prng);
  const auto host = make_host(*device, 4, KvLayout::kPageFirst);
  const std::int64_t asks_min = shape.total_bytes() / (std::int64_t{1} << 20) - 1;
  for (std::int64_t stop_at = 0;; ++stop_at) {
    std::int64_t asks = 0;
    const auto go_on = [&] { return asks++ < stop_at; };
    std::vector<PageMove> down = moves_between({0, 1, 2, 3}, {2, 3, 0, 1});
    host->backup(*device, down, go_on);
    for (const PageMove& move : down) {
      const bool done = move.verdict == MoveVerdict::kDone;
      EXPECT_TRUE(done || move.verdict == MoveVerdict::kCancelled);
      EXPECT_EQ(host->holds(move.to, move.key), done);
    }
    std::vector<PageMove> up = moves_back(down, {0, 1, 2, 3});
    std::erase_if(up, [&](const PageMove& move) { return !host->holds(move.from, move.key); });
    asks = 0;
    host->promote(*device, up, {0, 4}, go_on);
    EXPECT_TRUE(std::all_of(up.begin(), up.end(), [&](const PageMove& move) {
      return move.verdict == up.front().verdict;
    }));
    if (up.size() < down.size() || up.front().verdict != MoveVerdict::kDone) continue;
    EXPECT_GE(stop_at, asks_min);
    break;
  }
}

// Nor does it answer for what it held before, which has been written over in part.
TEST(HostPool, AStoppedCallIsNotTakenForOneThatEnded) {
  const KvShape shape = large_shape();
  const auto device = make_test_pool(shape, KvLayout::kLayerFirst);
  const auto host = make_host(*device, 4, KvLayout::kPageFirst);
  bool stopped = true;
  for (std::int64_t stop_at = 0; stopped; ++stop_at) {
    std::vector<PageMove> down = moves_between({0, 1, 2, 3}, {2, 3, 0, 1});
    host->backup(*device, down, kAlways);
    std::vector<PageMove> up = moves_back(down, {0, 1, 2, 3});
    std::int64_t asks = 0;
    const auto go_on = [&] { return asks++ < stop_at; };
    host->promote(*device, up, {0, 4}, go_on);
    stopped = asks > stop_at;
    EXPECT_THAT(verdicts(up),
                testing::Each(stopped ? MoveVerdict::kCancelled : MoveVerdict::kDone));
    for (PageMove& move : down) move.verdict = MoveVerdict::kUntried;
    asks = 0;
    host->backup(*device, down, go_on);
    for (const PageMove& move : down) {
      EXPECT_EQ(host->holds(move.to, move.key), move.verdict == MoveVerdict::kDone);
    }
  }
}

TEST(HostPool, DisjointPagesMoveAtOnce) {
  SCOPED_TRACE(kSeed);
  Prng prng(kSeed);
  const auto device = make_test_pool(small_shape(), KvLayout::kLayerFirst);
  fill_randomly(*device, prng);
  const auto before = all_images(*device);
  const auto host = make_host(*device, 6, KvLayout::kLayerFirst);
  std::vector<PageMove> down = moves_between({0, 1, 2, 3, 4, 5}, {5, 4, 3, 2, 1, 0});
  std::vector<PageMove> up = moves_back(down, {0, 1, 2, 3, 4, 5});
  ThreadPool threads(2);
  for (int round = 0; round < 50; ++round) {
    for (PageMove& move : down) move.verdict = MoveVerdict::kUntried;
    for (PageMove& move : up) move.verdict = MoveVerdict::kUntried;
    threads.run(2, [&](std::int64_t half, int) {
      const auto begin = static_cast<std::size_t>(half) * 3;
      host->backup(*device, std::span(down).subspan(begin, 3), kAlways);
      host->promote(*device, std::span(up).subspan(begin, 3), {0, 3}, kAlways);
    });
    ASSERT_THAT(verdicts(up), testing::Each(MoveVerdict::kDone));
  }
  EXPECT_TRUE(all_images(*device) == before);
}

TEST_F(HostPoolOfSix, CopiesTakeNoMemory) {
  std::vector<PageMove> up = all_up();
  for (PageMove& move : down_) move.verdict = MoveVerdict::kUntried;
  const std::int64_t before = heap_allocations.load();
  host_->backup(*device_, down_, kAlways);
  host_->promote(*device_, up, {0, 3}, kAlways);
  EXPECT_EQ(heap_allocations.load(), before);
  EXPECT_THAT(verdicts(up), testing::Each(MoveVerdict::kDone));
}

// Memory whose requests fail as a test says, and the lines that are logged meanwhile.
class ScarceMemory : public testing::Test {
 protected:
  void SetUp() override {
    set_log_sink([this](LogLevel, std::string_view line) { lines_.emplace_back(line); });
  }
  void TearDown() override { set_log_sink({}); }

  Result<std::unique_ptr<HostPool>> create(std::function<bool(std::size_t)> fails) {
    lines_.clear();
    HostPoolOptions options;
    options.pages = 100;
    options.pages_min = 10;
    options.layers = 4;
    options.layer_bytes = 1024;
    options.allocate = [fails = std::move(fails)](std::size_t size_bytes) -> Result<Buffer> {
      if (fails(size_bytes)) return Error{ErrorCode::kOutOfMemory, "injected", ENOMEM};
      return Buffer::allocate(size_bytes);
    };
    return HostPool::create(options, threads_);
  }

  ThreadPool threads_{1};
  std::vector<std::string> lines_;
};

// Row 11: a smaller tier, logged once; no abort.
TEST_F(ScarceMemory, AnyFailedRequestGivesASmallerPool) {
  for (int failing = 0; failing < 3; ++failing) {
    int call = 0;
    const auto host = create([&](std::size_t) { return call++ == failing; });
    ASSERT_TRUE(host.ok());
    EXPECT_EQ((*host)->pages(), 50);
    ASSERT_EQ(lines_.size(), 1u);
    EXPECT_THAT(lines_[0], testing::HasSubstr("pool.host_smaller wanted_pages=100 pages=50"));
    EXPECT_FALSE((*host)->holds(PageId(49), key_of(0)));
    std::ranges::fill((*host)->layer_image(PageId(49), 3), std::byte{1});
  }
  const auto whole = create([](std::size_t) { return false; });
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ((*whole)->pages(), 100);
  EXPECT_TRUE(lines_.empty());
}

TEST_F(ScarceMemory, EveryKthRequestFails) {
  for (int k = 1; k <= 20; ++k) {
    for (int phase = 0; phase < k; ++phase) {
      int call = phase;
      const auto host = create([&](std::size_t) { return ++call % k == 0; });
      // A pool makes three requests: from k = 4 on, two tries find three in a row.
      ASSERT_EQ(host.ok(), k >= 4) << k;
      if (!host.ok()) {
        EXPECT_EQ(host.error().code, ErrorCode::kOutOfMemory);
        continue;
      }
      const bool first_try = phase + 3 < k;
      EXPECT_EQ((*host)->pages(), first_try ? 100 : 50) << k << " " << phase;
      EXPECT_EQ(lines_.size(), first_try ? 0u : 1u);
    }
  }
}

TEST_F(ScarceMemory, AsManyPagesAsThereIsMemoryFor) {
  // 100, 50, 25, 12 and then the least, 10.
  for (const auto& [limit_bytes, pages] : std::vector<std::pair<std::size_t, std::int64_t>>{
           {409'600, 100}, {409'599, 50}, {150'000, 25}, {50'000, 12}, {40'960, 10}}) {
    const std::size_t limit = limit_bytes;
    const auto host = create([limit](std::size_t size_bytes) { return size_bytes > limit; });
    ASSERT_TRUE(host.ok()) << limit;
    EXPECT_EQ((*host)->pages(), pages);
    EXPECT_EQ(lines_.size(), pages == 100 ? 0u : 1u);
  }
  const auto none = create([](std::size_t size_bytes) { return size_bytes > 40'959; });
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::kOutOfMemory);
}

// A mapping can be had whatever a container may use; touching it would end the process.
TEST_F(ScarceMemory, MoreThanThereIsRoomForIsNotAskedFor) {
  const auto room = memory_room();
  if (!room.has_value()) GTEST_SKIP() << "nothing says how much memory there is";
  HostPoolOptions options = {.pages = 1 << 30, .pages_min = 1, .layers = 1, .layer_bytes = 1 << 20};
  std::size_t most_bytes = 0;
  options.allocate = [&](std::size_t size_bytes) -> Result<Buffer> {
    most_bytes = std::max(most_bytes, size_bytes);
    if (size_bytes > (1 << 20)) return Error{ErrorCode::kOutOfMemory, "injected", ENOMEM};
    return Buffer::allocate(size_bytes);
  };
  const auto host = HostPool::create(options, threads_);
  ASSERT_TRUE(host.ok());
  EXPECT_EQ((*host)->pages(), 1);
  EXPECT_LT(most_bytes, static_cast<std::size_t>(*room) * 2);  // which others take and give back
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_THAT(lines_[0], testing::HasSubstr("there is room for"));
}

TEST_F(ScarceMemory, OtherErrorsAreNotRetried) {
  int calls = 0;
  HostPoolOptions options = {.pages = 8, .pages_min = 1, .layers = 1, .layer_bytes = 64};
  options.allocate = [&](std::size_t) -> Result<Buffer> {
    ++calls;
    return Error{ErrorCode::kIo, "injected", EIO};
  };
  const auto host = HostPool::create(options, threads_);
  ASSERT_FALSE(host.ok());
  EXPECT_EQ(host.error().code, ErrorCode::kIo);
  EXPECT_EQ(calls, 1);
}

TEST(HostPool, WrongOptionsAreNamed) {
  ThreadPool threads(1);
  const HostPoolOptions right = {.pages = 4, .pages_min = 2, .layers = 3, .layer_bytes = 64};
  const std::vector<std::pair<std::string, std::function<void(HostPoolOptions&)>>> cases = {
      {"layers is -1", [](auto& options) { options.layers = -1; }},
      {"layer_bytes is -1", [](auto& options) { options.layer_bytes = -1; }},
      {"pages_min is 0", [](auto& options) { options.pages_min = 0; }},
      {"pages is 1, below pages_min, 2", [](auto& options) { options.pages = 1; }},
      {"too many", [](auto& options) { options.pages = std::int64_t{1} << 40; }},
      {"too many", [](auto& options) { options.layer_bytes = std::int64_t{1} << 61; }},
      {"device_shape: a codec needs", [](auto& options) { options.codec = PageCodec::kInt8; }},
  };
  for (const auto& [what, change] : cases) {
    HostPoolOptions options = right;
    change(options);
    const auto host = HostPool::create(options, threads);
    ASSERT_FALSE(host.ok()) << what;
    EXPECT_EQ(host.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(host.error().detail, testing::HasSubstr(what));
  }
}

TEST(HostPoolDeathTest, PagesAndShapesAreChecked) {
  const auto device = make_test_pool(small_shape(), KvLayout::kLayerFirst);
  const auto host = make_host(*device, 2, KvLayout::kPageFirst);
  EXPECT_DEATH(host->forget(PageId(2)), "a page of the host pool");
  std::vector<PageMove> down = moves_between({6}, {0});
  EXPECT_DEATH(host->backup(*device, down, kAlways), "a device page");
  const auto other = make_test_pool(small_shape(1), KvLayout::kLayerFirst);
  EXPECT_DEATH(host->backup(*other, {}, kAlways), "layer_bytes");
}

}  // namespace
}  // namespace stemma
