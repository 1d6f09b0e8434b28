// PageWork by itself: each kind of transfer moves the right bytes and says of each page what became
// of it; what is wrong goes no further, in either direction; a job that was cancelled, or whose
// deadline passed, or whose targets were withdrawn writes nothing more. The store is the test's
// own: it does what the test says while it is asked. Faults: rows 3, 4 and 13 (docs/FAULTS.md).
#include "tier/page_work.h"

#include <gmock/gmock-more-matchers.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "pool/pool_fixture.h"
#include "prefix/page_key.h"
#include "tier/map_store_fixture.h"

namespace stemma {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::uint64_t kSeed = 20261124;
constexpr PageVerdict kDone = PageVerdict::kDone;
constexpr PageVerdict kMissing = PageVerdict::kMissing;
constexpr PageVerdict kCorrupt = PageVerdict::kCorrupt;
constexpr PageVerdict kFailed = PageVerdict::kFailed;

KvShape small_shape() {
  return {
      .layers = 3, .pages = 8, .page_size = 4, .heads = 2, .head_dim = 20, .dtype = DType::kBF16};
}

// A frame of 2 MiB and a little: a call of a store reads one page, or writes seven.
KvShape large_shape() {
  return {.layers = 2,
          .pages = 9,
          .page_size = 64,
          .heads = 16,
          .head_dim = 256,
          .dtype = DType::kBF16};
}

// Says what it was asked for.
class OpenStore final : public MapStore {
 public:
  void read(std::span<PageRead> reads, std::int64_t deadline_us) override {
    calls.push_back(std::ssize(reads));
    MapStore::read(reads, deadline_us);
    for (PageRead& read : reads) {
      if (read.key == unreadable) read.verdict = PageVerdict::kFailed;
    }
    during_call();
  }
  void write(std::span<PageWrite> writes, std::int64_t deadline_us) override {
    calls.push_back(std::ssize(writes));
    MapStore::write(writes, deadline_us);
    during_call();
  }
  void remove(std::span<const PageRemoval> removals, std::int64_t deadline_us) override {
    for (const PageRemoval& removal : removals) {
      EXPECT_TRUE(std::ranges::equal(frames.at(removal.key), removal.frame)) << "as it was read";
    }
    MapStore::remove(removals, deadline_us);
  }

  PurgeOutcome purge_behind(std::span<const NamespaceFamily> namespaces, std::int64_t pages,
                            std::int64_t deadline_us) override {
    purged_behind = pages;
    return MapStore::purge(namespaces, deadline_us);
  }

  std::vector<std::int64_t> calls;  // pages of each read and write
  PageKey unreadable;
  std::int64_t purged_behind = 0;
  std::function<void()> during_call = [] {};
};

// A device pool, host memory and two stores; a text as long as the device pool.
class WorkBench {
 public:
  explicit WorkBench(const KvShape& shape, KvLayout device_layout = KvLayout::kLayerFirst,
                     KvLayout host_layout = KvLayout::kPageFirst)
      : device(make_test_pool(shape, device_layout)) {
    fill_randomly(*device, prng_);
    ThreadPool threads(1);
    HostPoolOptions options;
    options.pages = shape.pages;
    options.layers = shape.layers;
    options.layer_bytes = device->layer_bytes();
    options.layout = host_layout;
    host = HostPool::create(options, threads).value();
    work = PageWork::open({*device, *host, {&near, &far}, clock}).value();
    PageKeyChain chain(digest);
    for (std::int64_t page = 0; page < shape.pages; ++page) {
      for (std::int64_t i = 0; i < shape.page_size; ++i) {
        tokens.push_back(static_cast<TokenId>(prng_.below(50'000)));
      }
      keys.push_back(
          chain.append(std::span(tokens).last(static_cast<std::size_t>(shape.page_size))));
    }
  }

  // Of pages of the text from `first` on, as many as there are places.
  std::unique_ptr<Transfer> job(TransferKind kind, std::int64_t first,
                                const std::vector<std::int32_t>& from,
                                const std::vector<std::int32_t>& to) const {
    auto job = std::make_unique<Transfer>();
    const std::size_t pages = std::max(from.size(), to.size());
    const auto size = static_cast<std::size_t>(device->shape().page_size);
    const auto begin = static_cast<std::size_t>(first);
    job->kind = kind;
    job->digest = digest;
    job->first_page = first;
    job->parent = first == 0 ? PageKeyHasher::root(digest) : keys[begin - 1];
    for (std::size_t i = 0; i < pages; ++i) job->keys.push_back(keys[begin + i]);
    job->tokens.assign(tokens.begin() + static_cast<std::ptrdiff_t>(begin * size),
                       tokens.begin() + static_cast<std::ptrdiff_t>((begin + pages) * size));
    for (const std::int32_t page : from) job->from.push_back(PageId(page));
    for (const std::int32_t page : to) job->to.push_back(PageId(page));
    job->deadline_us = kDeadlineUs;
    return job;
  }
  std::vector<PageVerdict> run(Transfer& job) {
    work->run(job);
    return job.verdicts;
  }
  std::vector<PageVerdict> run(TransferKind kind, const std::vector<std::int32_t>& from,
                               const std::vector<std::int32_t>& to) {
    return run(*job(kind, 0, from, to));
  }
  // The first pages of the text, which lie in the device's first pages, through to `near`.
  void store_pages(std::int32_t pages) {
    std::vector<std::int32_t> places(static_cast<std::size_t>(pages));
    for (std::int32_t i = 0; i < pages; ++i) places[static_cast<std::size_t>(i)] = i;
    ASSERT_THAT(run(TransferKind::kBackup, places, places), Each(kDone));
    ASSERT_THAT(run(TransferKind::kStore, places, {}), Each(kDone));
    near.calls.clear();
  }
  std::vector<std::byte> image(std::int32_t page) const {
    return expected_image(*device, PageId(page));
  }
  std::vector<std::byte> host_image(std::int32_t page, std::size_t text_page) const {
    std::vector<std::byte> bytes(page_image_bytes(*device));
    std::vector<std::uint32_t> sums(static_cast<std::size_t>(device->shape().layers));
    EXPECT_EQ(host->read_image(PageId(page), keys[text_page], bytes, sums), MoveVerdict::kDone);
    return bytes;
  }

  static constexpr std::int64_t kDeadlineUs = 1'000;

  NamespaceDigest digest = {{7}};
  std::unique_ptr<MhaPool> device;
  std::unique_ptr<HostPool> host;
  OpenStore near;
  OpenStore far;
  FakeClock clock;
  std::unique_ptr<PageWork> work;
  std::vector<TokenId> tokens;
  std::vector<PageKey> keys;

 private:
  Prng prng_{kSeed};
};

TEST(PageWork, MovesTheSameBytesDownAndUpAgainBetweenAllLayouts) {
  SCOPED_TRACE(kSeed);
  constexpr KvLayout kLayouts[] = {KvLayout::kLayerFirst, KvLayout::kPageFirst};
  for (const KvLayout device : kLayouts) {
    for (const KvLayout host : kLayouts) {
      WorkBench b(small_shape(), device, host);
      const auto first = b.image(1);
      const auto second = b.image(3);
      EXPECT_THAT(b.run(TransferKind::kBackup, {1, 3}, {5, 0}), ElementsAre(kDone, kDone));
      EXPECT_EQ(b.host_image(5, 0), first);
      EXPECT_EQ(b.host_image(0, 1), second);
      EXPECT_THAT(b.run(TransferKind::kPromote, {5, 0}, {6, 7}), ElementsAre(kDone, kDone));
      EXPECT_EQ(b.image(6), first);
      EXPECT_EQ(b.image(7), second);
      EXPECT_THAT(b.run(TransferKind::kStore, {5, 0}, {}), ElementsAre(kDone, kDone));
      EXPECT_THAT(b.run(TransferKind::kLoad, {}, {4, 2}), ElementsAre(kDone, kDone));
      EXPECT_EQ(b.image(4), first);
      EXPECT_EQ(b.image(2), second);
      EXPECT_THAT(b.run(TransferKind::kFetch, {}, {1, 2}), ElementsAre(kDone, kDone));
      EXPECT_EQ(b.host_image(1, 0), first);
      EXPECT_EQ(b.host_image(2, 1), second);
    }
  }
}

// Of pages from the middle of a text, as whoever reads them checks them.
TEST(PageWork, FramesSayWhosePagesTheyAre) {
  WorkBench b(small_shape());
  const auto down = b.job(TransferKind::kBackup, 2, {0, 1}, {0, 1});
  const auto store = b.job(TransferKind::kStore, 2, {0, 1}, {});
  store->store = 1;
  EXPECT_THAT(b.run(*down), Each(kDone));
  EXPECT_THAT(b.run(*store), Each(kDone));
  EXPECT_THAT(b.near.frames, IsEmpty());
  ASSERT_EQ(b.far.frames.size(), 2u);
  std::uint64_t generation = 0;
  for (std::size_t page = 2; page < 4; ++page) {
    const auto size = static_cast<std::size_t>(small_shape().page_size);
    const PageIdentity identity = {.key = b.keys[page],
                                   .parent = b.keys[page - 1],
                                   .namespace_digest = b.digest,
                                   .ordinal = static_cast<std::int64_t>(page),
                                   .tokens = std::span(b.tokens).subspan(page * size, size)};
    const auto& frame = b.far.frames.at(b.keys[page]);
    const auto view = check_frame(frame, page_format(*b.device), identity);
    ASSERT_TRUE(view.ok()) << to_string(view.error());
    EXPECT_TRUE(check_body(*view).ok());
    EXPECT_TRUE(page == 2 || view->generation > generation);
    generation = view->generation;
  }
}

TEST(PageWork, EachPageHasAVerdictOfItsOwn) {
  WorkBench b(small_shape());
  b.store_pages(3);
  const auto third = b.image(2);
  b.near.frames.erase(b.keys[1]);
  EXPECT_THAT(b.run(TransferKind::kLoad, {}, {5, 6, 7}), ElementsAre(kDone, kMissing, kDone));
  EXPECT_EQ(b.image(7), third);
  EXPECT_THAT(b.run(TransferKind::kFetch, {}, {5, 6, 7}), ElementsAre(kDone, kMissing, kDone));
  EXPECT_FALSE(b.host->holds(PageId(6), b.keys[1]));
  b.near.refused = b.keys[1];
  EXPECT_THAT(b.run(TransferKind::kStore, {0, 1, 2}, {}),
              ElementsAre(kDone, PageVerdict::kRefused, kDone));
}

TEST(PageWork, APromotionBringsNoPageThatIsStaleOrWrong) {
  WorkBench b(small_shape());
  b.store_pages(4);
  const auto last = b.image(3);
  const auto before = b.image(5);
  b.host->forget(PageId(1));
  b.host->layer_image(PageId(2), 1)[17] ^= std::byte{4};
  EXPECT_THAT(b.run(TransferKind::kPromote, {0, 1, 2, 3}, {4, 5, 6, 7}),
              ElementsAre(kDone, kMissing, kCorrupt, kDone));
  EXPECT_EQ(b.image(5), before);
  EXPECT_EQ(b.image(7), last);
}

// Nor are those behind it, which are worth nothing without it.
TEST(PageWork, APageThatIsWrongInHostMemoryIsNotHandedOn) {
  WorkBench b(small_shape());
  ASSERT_THAT(b.run(TransferKind::kBackup, {0, 1, 2}, {0, 1, 2}), Each(kDone));
  b.host->layer_image(PageId(1), 2)[0] ^= std::byte{1};
  EXPECT_THAT(b.run(TransferKind::kStore, {0, 1, 2}, {}), ElementsAre(kDone, kCorrupt, kFailed));
  EXPECT_EQ(b.near.frames.size(), 1u);
  EXPECT_TRUE(b.near.frames.contains(b.keys[0]));
  b.host->forget(PageId(0));
  b.near.frames.clear();
  EXPECT_THAT(b.run(TransferKind::kStore, {0, 1, 2}, {}), ElementsAre(kMissing, kFailed, kFailed));
  EXPECT_THAT(b.near.frames, IsEmpty());
}

TEST(PageWork, AWrongFrameIsNotUsedAndGoes) {
  for (const TransferKind kind : {TransferKind::kLoad, TransferKind::kFetch}) {
    SCOPED_TRACE(transfer_kind_name(kind));
    WorkBench b(small_shape());
    b.store_pages(4);
    const auto before = b.image(5);
    const std::size_t body_begin = frame_body_offset(page_format(*b.device));
    b.near.frames.at(b.keys[0])[body_begin + 3] ^= std::byte{1};  // a bit of the body flipped
    b.near.frames.at(b.keys[1]) = b.near.frames.at(b.keys[3]);    // another page's frame
    b.near.frames.at(b.keys[2])[80] ^= std::byte{1};              // a bit of the header
    EXPECT_THAT(b.run(kind, {}, {4, 5, 6, 7}), ElementsAre(kCorrupt, kCorrupt, kCorrupt, kDone));
    EXPECT_EQ(b.near.frames.size(), 1u);
    EXPECT_TRUE(b.near.frames.contains(b.keys[3]));
    EXPECT_EQ(b.image(5), before);
    for (int page = 0; page < 3; ++page) {
      EXPECT_FALSE(b.host->holds(PageId(4 + page), b.keys[static_cast<std::size_t>(page)]));
    }
  }
}

// Each byte class of a frame: nothing of a frame that differs anywhere is used. Bytes between the
// body and the end of its slot say nothing.
TEST(PageWork, NoFlippedBitIsTakenUp) {
  SCOPED_TRACE(kSeed);
  WorkBench b(small_shape());
  b.store_pages(1);
  const auto frame = b.near.frames.at(b.keys[0]);
  const std::size_t body_end =
      frame_body_offset(page_format(*b.device)) + page_image_bytes(*b.device);
  Prng prng(kSeed);
  for (int flip = 0; flip < 2000; ++flip) {
    auto& stored = b.near.frames[b.keys[0]] = frame;
    const auto at = static_cast<std::size_t>(prng.below(static_cast<std::int64_t>(body_end)));
    stored[at] ^= std::byte{1} << prng.below(8);
    ASSERT_THAT(b.run(TransferKind::kFetch, {}, {5}), ElementsAre(kCorrupt)) << at;
    ASSERT_FALSE(b.host->holds(PageId(5), b.keys[0])) << at;
    ASSERT_FALSE(b.near.frames.contains(b.keys[0])) << at;
  }
}

TEST(PageWork, WhatIsCancelledBeforeItBeginsMovesNothing) {
  WorkBench b(small_shape());
  b.store_pages(2);
  const auto before = b.image(5);
  for (const TransferKind kind :
       {TransferKind::kBackup, TransferKind::kPromote, TransferKind::kStore, TransferKind::kLoad,
        TransferKind::kFetch}) {
    SCOPED_TRACE(transfer_kind_name(kind));
    const auto job = b.job(kind, 0, {0, 1}, {4, 5});
    job->cancelled = true;
    EXPECT_THAT(b.run(*job), Each(kFailed));
    EXPECT_THAT(b.near.calls, IsEmpty());
    EXPECT_FALSE(b.host->holds(PageId(4), b.keys[0]));
  }
  EXPECT_EQ(b.image(5), before);
}

TEST(PageWork, ADeadlineThatHasPassedAsksNoStore) {
  WorkBench b(small_shape());
  b.store_pages(2);
  b.clock.advance_us(WorkBench::kDeadlineUs);
  for (const TransferKind kind :
       {TransferKind::kStore, TransferKind::kLoad, TransferKind::kFetch}) {
    SCOPED_TRACE(transfer_kind_name(kind));
    EXPECT_THAT(b.run(kind, {0, 1}, {4, 5}), Each(kFailed));
    EXPECT_THAT(b.near.calls, IsEmpty());
  }
  EXPECT_THAT(b.run(TransferKind::kBackup, {0}, {4}), Each(kDone)) << "copies have none";
}

// A job of several calls goes on to the next one only while it is wanted; what the call brought
// that was under way is taken.
TEST(PageWork, ALongJobStopsBetweenTwoCalls) {
  WorkBench b(large_shape());
  b.store_pages(9);
  const auto load = b.job(TransferKind::kLoad, 0, {}, {8, 7, 6});
  b.near.during_call = [&] { load->cancelled = b.near.calls.size() == 2; };
  EXPECT_THAT(b.run(*load), ElementsAre(kDone, kDone, kFailed));
  EXPECT_THAT(b.near.calls, ElementsAre(1, 1));

  b.near.calls.clear();
  const auto fetch = b.job(TransferKind::kFetch, 0, {}, {8, 7, 6});
  b.near.during_call = [&] { b.clock.advance_us(WorkBench::kDeadlineUs); };
  EXPECT_THAT(b.run(*fetch), ElementsAre(kDone, kFailed, kFailed));
  EXPECT_THAT(b.near.calls, ElementsAre(1));
}

TEST(PageWork, ALongStoreStopsBetweenTwoCalls) {
  WorkBench b(large_shape());
  b.store_pages(9);
  const auto store = b.job(TransferKind::kStore, 0, {0, 1, 2, 3, 4, 5, 6, 7, 8}, {});
  EXPECT_THAT(b.run(*store), Each(kDone));
  EXPECT_THAT(b.near.calls, ElementsAre(7, 2));
  b.near.calls.clear();
  b.near.during_call = [&] { store->cancelled = true; };
  b.run(*store);
  EXPECT_EQ(store->done_pages(), 7);
  EXPECT_EQ(store->verdicts[7], kFailed);
  EXPECT_THAT(b.near.calls, ElementsAre(7));
}

// I6: the engine takes the target pages back while a store works, and may give them to others.
TEST(PageWork, WhatWasWithdrawnWhileItWasReadIsNotWritten) {
  for (const TransferKind kind : {TransferKind::kLoad, TransferKind::kFetch}) {
    SCOPED_TRACE(transfer_kind_name(kind));
    WorkBench b(small_shape());
    b.store_pages(2);
    ASSERT_THAT(b.run(TransferKind::kBackup, {6, 7}, {6, 7}), Each(kDone));  // another's by now
    const auto device_page = b.image(6);
    const auto host_page = b.host_image(6, 0);
    const auto job = b.job(kind, 0, {}, {6, 7});
    b.near.frames.at(b.keys[1])[80] ^= std::byte{1};
    b.near.during_call = [&] { EXPECT_TRUE(job->try_withdraw()); };
    EXPECT_THAT(b.run(*job), ElementsAre(kFailed, kFailed));
    EXPECT_EQ(b.image(6), device_page);
    EXPECT_EQ(b.host_image(6, 0), host_page);
    EXPECT_EQ(b.near.frames.size(), 2u) << "nobody looked at what came";
  }
}

// A store that is asked over a network says nothing of what it has lost.
TEST(PageWork, AStoreIsAskedForWhatLiesBeforeThePagesThatItWasGiven) {
  WorkBench b(small_shape());
  b.store_pages(3);
  ASSERT_THAT(b.run(*b.job(TransferKind::kBackup, 3, {3}, {3})), Each(kDone));
  const auto store = b.job(TransferKind::kStore, 3, {3}, {});
  store->before.assign(b.keys.begin(), b.keys.begin() + 3);
  EXPECT_THAT(b.run(*store), Each(kDone));
  EXPECT_EQ(store->lost_pages, 0);
  EXPECT_EQ(b.near.renewed, store->before);
  b.near.frames.erase(b.keys[1]);
  EXPECT_THAT(b.run(*store), Each(kDone));
  EXPECT_EQ(store->lost_pages, 2);
  store->lost_pages = 0;
  b.near.refused = b.keys[3];
  EXPECT_THAT(b.run(*store), Each(PageVerdict::kRefused));
  EXPECT_EQ(store->lost_pages, 0) << "it has no room for more";
}

TEST(PageWork, AStoreIsNotAskedForWhatLiesBeforeOnceTheJobIsOver) {
  for (const bool cancelled : {false, true}) {
    SCOPED_TRACE(cancelled ? "cancelled" : "too late");
    WorkBench b(small_shape());
    ASSERT_THAT(b.run(*b.job(TransferKind::kBackup, 3, {3}, {3})), Each(kDone));
    const auto store = b.job(TransferKind::kStore, 3, {3}, {});
    store->before.assign(b.keys.begin(), b.keys.begin() + 3);
    b.near.during_call = [&] {
      store->cancelled = cancelled;
      if (!cancelled) b.clock.advance_us(WorkBench::kDeadlineUs);
    };
    EXPECT_THAT(b.run(*store), Each(kDone));
    EXPECT_THAT(b.near.renewed, IsEmpty());
    EXPECT_EQ(store->lost_pages, 0) << "nothing is known of them";
  }
}

TEST(PageWork, LooksUpHowManyPagesTheStoreHas) {
  WorkBench b(small_shape());
  b.store_pages(3);
  const auto look = b.job(TransferKind::kLookup, 0, {}, {0, 1, 2, 3, 4});
  b.run(*look);
  EXPECT_EQ(look->found_pages, 3);
  look->store = 1;
  b.run(*look);
  EXPECT_EQ(look->found_pages, 0);
  look->store = 0;
  b.near.broken = true;
  b.run(*look);
  EXPECT_EQ(look->found_pages, 0) << "a store that fails has nothing";
}

TEST(PageWork, APageIsRemovedOnceTheStoreSaysThatItStaysAway) {
  WorkBench b(small_shape());
  b.store_pages(2);
  const auto removal = b.job(TransferKind::kRemove, 0, {}, {0, 1, 2});
  b.near.removals_last = false;
  EXPECT_THAT(b.run(*removal), Each(kFailed));
  EXPECT_THAT(b.near.frames, IsEmpty());
  EXPECT_THAT(b.run(*removal), Each(kFailed)) << "it is not found, but may be back";
  b.near.removals_last = true;
  EXPECT_THAT(b.run(*removal), Each(kDone));
}

// An error says nothing of the page: it may be there still.
TEST(PageWork, APageThatCannotBeReadIsNotTakenForGone) {
  WorkBench b(small_shape());
  b.store_pages(3);
  b.near.unreadable = b.keys[1];
  const auto removal = b.job(TransferKind::kRemove, 0, {}, {0, 1, 2});
  EXPECT_THAT(b.run(*removal), ElementsAre(kDone, kFailed, kDone));
  EXPECT_EQ(b.near.frames.size(), 1u);
  EXPECT_TRUE(b.near.frames.contains(b.keys[1]));
}

TEST(PageWork, PurgesWhatLiesBehindAPage) {
  WorkBench b(small_shape());
  const auto purge = b.job(TransferKind::kPurge, 0, {}, {});
  purge->namespaces.resize(1);
  b.run(*purge);
  EXPECT_EQ(b.near.purged_behind, 0);
  purge->first_page = 5;
  b.run(*purge);
  EXPECT_EQ(b.near.purged_behind, 5);
  EXPECT_TRUE(purge->purge->status.ok());
}

TEST(PageWork, PurgesNamespaces) {
  WorkBench b(small_shape());
  b.store_pages(3);
  const auto purge = b.job(TransferKind::kPurge, 0, {}, {});
  purge->namespaces.resize(2);
  purge->cancelled = true;
  b.run(*purge);
  EXPECT_FALSE(purge->purge.has_value()) << "it was not begun";
  purge->cancelled = false;
  b.near.broken = true;
  b.run(*purge);
  EXPECT_FALSE(purge->purge->status.ok());
  b.near.broken = false;
  b.run(*purge);
  EXPECT_TRUE(purge->purge->status.ok());
  EXPECT_EQ(purge->purge->pages, 3);
  EXPECT_EQ(b.near.purged, purge->namespaces);
  purge->purge.reset();
  b.clock.advance_us(WorkBench::kDeadlineUs);
  b.run(*purge);
  EXPECT_FALSE(purge->purge.has_value()) << "too late";
}

TEST(PageWork, APromotionSaysWhichLayersHaveCome) {
  WorkBench b(small_shape());
  b.store_pages(2);
  const auto right = b.job(TransferKind::kPromote, 0, {0, 1}, {4, 5});
  b.run(*right);
  EXPECT_TRUE(right->has_arrived(2));
  EXPECT_FALSE(right->has_arrived(3)) << "there are three";
  EXPECT_FALSE(right->is_spoilt());
  b.host->layer_image(PageId(1), 2)[0] ^= std::byte{1};
  const auto wrong = b.job(TransferKind::kPromote, 0, {0, 1}, {4, 5});
  b.run(*wrong);
  EXPECT_TRUE(wrong->has_arrived(2)) << "nobody waits for ever";
  EXPECT_TRUE(wrong->is_spoilt());
}

// Two pools whose pages have as many bytes are told from each other in stores and files.
TEST(PageWork, AFormatSaysEverythingThatABodyMeans) {
  const auto format_of = [](const KvShape& shape, PageCodec codec = PageCodec::kPlain) {
    return page_format(*make_test_pool(shape, KvLayout::kLayerFirst), codec);
  };
  KvShape shape = small_shape();
  const PageFormat plain = format_of(shape);
  EXPECT_EQ(plain.layers, 3);
  EXPECT_EQ(plain.layer_bytes, 2 * 4 * 2 * 20 * 2);
  EXPECT_EQ(plain.page_size, 4);
  EXPECT_EQ(plain.heads, 2);
  EXPECT_EQ(plain.head_dim, 20);
  EXPECT_EQ(plain.dtype, DType::kBF16);
  EXPECT_EQ(plain.kind, "mha");
  EXPECT_EQ(plain.codec, "plain");
  const PageFormat packed = format_of(shape, PageCodec::kInt8);
  EXPECT_EQ(packed.layer_bytes, 2 * 4 * 2 * (20 + 4));
  EXPECT_EQ(packed.dtype, DType::kBF16);
  EXPECT_EQ(packed.codec, "int8");
}

TEST(PageWork, SaysWhenAJobBeganAndEnded) {
  WorkBench b(small_shape());
  b.store_pages(1);
  b.clock.advance_us(10);
  b.near.during_call = [&] { b.clock.advance_us(30); };
  const auto load = b.job(TransferKind::kLoad, 0, {}, {4});
  b.run(*load);
  EXPECT_EQ(load->started_us, 10);
  EXPECT_EQ(load->ended_us, 40);
}

}  // namespace
}  // namespace stemma
