// The disk store without faults: what is stored is found, also after a restart; the limit holds;
// the coldest goes first; other models' pages go before one's own.
#include "store/disk_page_store.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <mutex>
#include <thread>

#include "base/temp_directory.h"
#include "stemma/log.h"
#include "store/disk_store_fixture.h"

namespace stemma {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

PageFormat other_format() {
  PageFormat format = small_format();
  format.layer_bytes = 4096;
  return format;
}

TEST(DiskPageStore, FindsWhatWasStored) {
  DiskStoreFixture f(1);
  ASSERT_TRUE(f.open());
  const auto pages = make_pages(small_format(), 1, 5);
  EXPECT_EQ(f.serve(pages[0]), Served::kMiss);
  EXPECT_THAT(f.put_all(pages), Each(PageVerdict::kDone));
  EXPECT_EQ(f.lookup(pages), 5);
  EXPECT_EQ(f.count_right(pages), 5);
  EXPECT_EQ(f.store->usage().pages, 5);
  EXPECT_EQ(f.metric("written_pages_total"), 5);
}

// Its pages' and the index's, so that the wear of the disk can be told.
TEST(DiskPageStore, CountsAllBytesThatItWrites) {
  DiskStoreFixture f(1);
  ASSERT_TRUE(f.open());
  const auto pages = make_pages(small_format(), 1, 5);
  const auto frame = static_cast<std::int64_t>(frame_bytes(small_format()));
  const std::int64_t before = f.metric("written_bytes_total");
  EXPECT_THAT(f.put_all(pages), Each(PageVerdict::kDone));
  const std::int64_t written = f.metric("written_bytes_total") - before;
  EXPECT_GT(written, 5 * frame);
  EXPECT_LT(written, 6 * frame);
}

TEST(DiskPageStore, OpensWarm) {
  DiskStoreFixture f(2);
  ASSERT_TRUE(f.open());
  const auto pages = make_pages(small_format(), 2, 20);
  EXPECT_THAT(f.put_all(pages), Each(PageVerdict::kDone));
  ASSERT_TRUE(f.open());
  EXPECT_EQ(f.lookup(pages), 20);
  EXPECT_EQ(f.count_right(pages), 20);
}

// The last words of a store that is closed are not needed.
TEST(DiskPageStore, OpensWarmAfterACrash) {
  for (const std::size_t tear_bytes : {512u, 4096u}) {
    DiskStoreFixture f(3);
    ASSERT_TRUE(f.open());
    const auto pages = make_pages(small_format(), 3, 20);
    EXPECT_THAT(f.put_all(pages), Each(PageVerdict::kDone));
    f.crash(tear_bytes);
    ASSERT_TRUE(f.open());
    EXPECT_EQ(f.count_right(pages), 20);
  }
}

TEST(DiskPageStore, LookupStopsAtTheFirstPageThatIsMissing) {
  DiskStoreFixture f(4);
  ASSERT_TRUE(f.open());
  const auto pages = make_pages(small_format(), 4, 4);
  f.put(pages[0]);
  f.put(pages[1]);
  f.put(pages[3]);
  EXPECT_EQ(f.lookup(pages), 2);
}

TEST(DiskPageStore, APageThatIsThereIsLeftAsItIs) {
  DiskStoreFixture f(5);
  ASSERT_TRUE(f.open());
  const auto pages = make_pages(small_format(), 5, 1);
  EXPECT_EQ(f.put(pages[0]), PageVerdict::kDone);
  const std::int64_t operations = f.disk.operations;
  EXPECT_EQ(f.put(pages[0]), PageVerdict::kDone);
  EXPECT_EQ(f.disk.operations, operations);
  // Nor is it stored twice by one call.
  const TestPage page(small_format(), 55);
  std::vector<PageWrite> writes = {{page.key(), page.frame()}, {page.key(), page.frame()}};
  f.store->write(writes, f.soon());
  EXPECT_EQ(writes[0].verdict, PageVerdict::kDone);
  EXPECT_EQ(writes[1].verdict, PageVerdict::kDone);
  EXPECT_EQ(f.store->usage().pages, 2);
}

TEST(DiskPageStore, WhatIsNoFrameOrAnotherPagesIsRefused) {
  DiskStoreFixture f(6);
  ASSERT_TRUE(f.open());
  set_log_sink({});
  TestPage page(small_format(), 6);
  const TestPage other(small_format(), 7);
  PageWrite misnamed{other.key(), page.frame()};
  f.store->write(std::span(&misnamed, 1), f.soon());
  EXPECT_EQ(misnamed.verdict, PageVerdict::kRefused);
  page.frame()[100] ^= std::byte{1};
  EXPECT_EQ(f.put(page), PageVerdict::kRefused);
}

// Under the same key: whoever stored it had another codec, say. It would be looked up and missed
// for ever, and kept what is of use from being stored.
TEST(DiskPageStore, APageOfAnotherLengthGoesWithItsFirstReader) {
  DiskStoreFixture f(7);
  ASSERT_TRUE(f.open(4 << 20));
  PageFormat longer_format = small_format();
  longer_format.layer_bytes += 256 << 10;  // of which the test's namespaces know nothing
  const TestPage page(small_format(), 7);
  const TestPage longer(longer_format, 7);
  ASSERT_EQ(page.key(), longer.key());
  ASSERT_NE(page.frame().size(), longer.frame().size());
  f.put(page);
  EXPECT_EQ(f.serve(longer), Served::kMiss);
  EXPECT_EQ(f.lookup({&page, 1}), 0);
  EXPECT_EQ(f.put(longer), PageVerdict::kDone);
  EXPECT_EQ(f.serve(longer), Served::kRight);
  f.crash();
  ASSERT_TRUE(f.open(4 << 20));
  EXPECT_EQ(f.serve(longer), Served::kRight);
}

// Group commit: one sync of the slab and one of the index for all pages of a call.
TEST(DiskPageStore, ACallCostsTwoSyncsHoweverManyPagesAndHoweverFullTheStore) {
  DiskStoreFixture f(8);
  ASSERT_TRUE(f.open(DiskStoreFixture::kBytesMax, 400 << 10));
  std::int64_t first = 0;
  std::int64_t last = 0;
  for (std::uint64_t call = 0; call < 60; ++call) {
    const auto pages = make_pages(small_format(), 100 + call, 5);
    const std::int64_t before = f.disk.operations;
    EXPECT_THAT(f.put_all(pages), Each(PageVerdict::kDone)) << call;
    if (call == 1) first = f.disk.operations - before;
    last = f.disk.operations - before;
  }
  EXPECT_EQ(first, 5 + 1 + 2);  // bodies; sync of the slab; append and sync of the index
  EXPECT_LE(last, first + 1);   // the pages may lie in two slabs
}

// Frames of one piece of memory that get neighbouring slots.
TEST(DiskPageStore, FramesThatFollowEachOtherAreOneWriteAndFailTogether) {
  constexpr std::size_t kTogether = 64;  // 512 KiB of frames of 8 KiB
  const auto pages = make_pages(small_format(), 9, 70);
  Buffer memory = Buffer::allocate(pages.size() * pages[0].frame().size()).value();
  std::vector<PageWrite> writes;
  for (const TestPage& page : pages) {
    const auto frame =
        memory.as<std::byte>().subspan(writes.size() * page.frame().size(), page.frame().size());
    std::ranges::copy(page.frame(), frame.begin());
    writes.push_back({page.key(), frame});
  }
  DiskStoreFixture f(9);
  ASSERT_TRUE(f.open(DiskStoreFixture::kBytesMax, 600 << 10));
  ASSERT_EQ(f.put(TestPage(small_format(), 10)), PageVerdict::kDone);  // makes the slab
  f.disk.faults.fail_at = f.disk.operations;
  f.store->write(writes, f.soon());
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const bool failed = i < kTogether;
    EXPECT_EQ(writes[i].verdict, failed ? PageVerdict::kFailed : PageVerdict::kDone) << i;
    EXPECT_EQ(f.serve(pages[i]), failed ? Served::kMiss : Served::kRight) << i;
  }

  DiskStoreFixture whole(9);
  ASSERT_TRUE(whole.open(DiskStoreFixture::kBytesMax, 600 << 10));
  ASSERT_EQ(whole.put(TestPage(small_format(), 10)), PageVerdict::kDone);
  const std::int64_t before = whole.disk.operations;
  whole.store->write(writes, whole.soon());
  EXPECT_EQ(whole.disk.operations - before, 2 + 1 + 2);  // bodies; sync; append and sync
  whole.crash();
  ASSERT_TRUE(whole.open());
  EXPECT_EQ(whole.count_right(pages), 70);
}

// Fault 5: the limit counts everything in the directory, at every moment between two calls.
TEST(DiskPageStore, TheLimitHoldsAndTheColdestGoesFirst) {
  DiskStoreFixture f(9);
  ASSERT_TRUE(f.open());
  std::vector<TestPage> pages;
  for (std::int64_t i = 0; i < 400; ++i) {
    pages.emplace_back(small_format(), 9, i);
    ASSERT_EQ(f.put(pages.back()), PageVerdict::kDone);
    ASSERT_EQ(f.lookup(std::span(pages).first(1)), 1) << "the page in use was evicted";
    ASSERT_LE(f.disk.used_bytes(), DiskStoreFixture::kBytesMax);
    ASSERT_LE(f.disk.used_bytes(), f.store->usage().bytes);
    ASSERT_LE(f.store->usage().bytes, f.store->usage().bytes_max);
  }
  const std::int64_t held = f.store->usage().pages;
  EXPECT_GT(held, 80);
  EXPECT_EQ(f.count_right(std::span(pages).last(static_cast<std::size_t>(held - 1))), held - 1);
  EXPECT_EQ(f.serve(pages[1]), Served::kMiss);
}

// A page is worth nothing without those before it.
TEST(DiskPageStore, DeeperPagesAreColderThanTheirParents) {
  DiskStoreFixture f(10);
  ASSERT_TRUE(f.open());
  const auto chain = make_pages(small_format(), 10, 40);
  f.put_all(chain);
  EXPECT_EQ(f.lookup(chain), 40);
  for (const TestPage& page : make_pages(small_format(), 1000, 75)) f.put(page);
  const std::int64_t left = f.lookup(chain);
  EXPECT_GT(left, 0);
  EXPECT_LT(left, 40);
  for (const TestPage& page : std::span(chain).subspan(static_cast<std::size_t>(left))) {
    EXPECT_EQ(f.lookup({&page, 1}), 0) << "a page went before one that follows it";
  }
}

TEST(DiskPageStore, WhatWasLookedUpOrReadStaysWhenOthersGo) {
  for (const bool is_read : {false, true}) {
    DiskStoreFixture f(10);
    ASSERT_TRUE(f.open());
    const auto used = make_pages(small_format(), 10, 20);
    f.put_all(used);
    for (const TestPage& page : make_pages(small_format(), 1000, 60)) f.put(page);
    EXPECT_EQ(is_read ? f.count_right(used) : f.lookup(used), 20);
    for (const TestPage& page : make_pages(small_format(), 1001, 60)) f.put(page);
    EXPECT_EQ(f.lookup(used), 20);
  }
}

TEST(DiskPageStore, WhatWasUsedLastIsKnownAfterARestart) {
  DiskStoreFixture f(11);
  ASSERT_TRUE(f.open());
  const auto pages = make_pages(small_format(), 11, 60);
  f.put_all(pages);
  ASSERT_TRUE(f.open());
  EXPECT_EQ(f.lookup(std::span(pages).last(10)), 10);
  ASSERT_TRUE(f.open());
  f.store->describe(pages[0].identity().namespace_digest, "model=a");
  f.put_all(make_pages(small_format(), 12, 70));
  EXPECT_EQ(f.lookup(std::span(pages).last(10)), 10);
  EXPECT_LT(f.store->usage().pages, 130);
}

TEST(DiskPageStore, RemovesAPageOnlyIfItStillHoldsTheseBytes) {
  DiskStoreFixture f(12);
  ASSERT_TRUE(f.open());
  TestPage page(small_format(), 12);
  f.put(page);
  page.frame()[5000] ^= std::byte{1};  // damage on the way, not on the disk
  PageRemoval removal{page.key(), page.frame()};
  f.store->remove(std::span(&removal, 1), f.soon());
  EXPECT_EQ(f.store->usage().pages, 1);
  page.frame()[5000] ^= std::byte{1};
  f.store->remove(std::span(&removal, 1), f.soon());
  EXPECT_EQ(f.store->usage().pages, 0);
  EXPECT_EQ(f.metric("removed_pages_total"), 1);
  f.crash();
  ASSERT_TRUE(f.open());
  EXPECT_EQ(f.serve(page), Served::kMiss);
}

TEST(DiskPageStore, RemovesAPageThatIsDamagedOnTheDiskToo) {
  DiskStoreFixture f(12);
  ASSERT_TRUE(f.open());
  const TestPage page(small_format(), 12);
  f.put(page);
  f.disk.file_or_null("slab-0-8192")->now[5000] ^= std::byte{1};
  const PageRemoval removal{page.key(), page.frame()};  // other bytes than lie there
  f.disk.faults.failing = DiskVerb::kRead;
  f.store->remove(std::span(&removal, 1), f.soon());
  EXPECT_EQ(f.store->usage().pages, 1) << "nobody knows what lies there";
  EXPECT_EQ(f.metric("kept_removals_total"), 1);
  f.disk.faults = {};
  f.store->remove(std::span(&removal, 1), f.soon());
  EXPECT_EQ(f.store->usage().pages, 0);
}

TEST(DiskPageStore, AnotherModelsPagesGoFirst) {
  DiskStoreFixture f(13);
  ASSERT_TRUE(f.open());
  const auto foreign = make_pages(small_format(), 13, 40);
  f.put_all(foreign);
  PageFormat format = small_format();
  format.dtype = DType::kBF16;  // frames of the same size
  const auto own = make_pages(format, 14, 40);
  f.put_all(own);
  EXPECT_EQ(f.lookup(foreign), 40);  // last used
  ASSERT_TRUE(f.open());
  f.store->describe(own[0].identity().namespace_digest, "dtype=bf16");
  const auto more = make_pages(format, 15, 40);
  EXPECT_THAT(f.put_all(more), Each(PageVerdict::kDone));
  EXPECT_EQ(f.lookup(own), 40);
}

TEST(DiskPageStore, SlotsOfAnotherSizeMakeRoom) {
  DiskStoreFixture f(14);
  ASSERT_TRUE(f.open());
  f.put_all(make_pages(small_format(), 14, 80));
  ASSERT_TRUE(f.open());
  const auto own = make_pages(other_format(), 15, 40);
  EXPECT_THAT(f.put_all(own), Each(PageVerdict::kDone));
  EXPECT_EQ(f.count_right(own), 40);
  EXPECT_LE(f.disk.used_bytes(), DiskStoreFixture::kBytesMax);
  // Also where both are in use.
  DiskStoreFixture g(15);
  ASSERT_TRUE(g.open());
  g.put_all(make_pages(small_format(), 16, 92));
  EXPECT_EQ(g.put(own[0]), PageVerdict::kDone);
  EXPECT_EQ(g.serve(own[0]), Served::kRight);
}

TEST(DiskPageStore, ALowerLimitIsMetAtOpening) {
  DiskStoreFixture f(16);
  ASSERT_TRUE(f.open());
  const auto pages = make_pages(small_format(), 16, 90);
  f.put_all(pages);
  ASSERT_TRUE(f.open(kDiskBytesMin));
  EXPECT_LE(f.disk.used_bytes(), kDiskBytesMin);
  EXPECT_GT(f.store->usage().pages, 0);
  EXPECT_EQ(f.count_right(pages), f.store->usage().pages);
}

TEST(DiskPageStore, ABatchThatDoesNotFitIsStoredAsFarAsItDoes) {
  DiskStoreFixture f(17);
  ASSERT_TRUE(f.open());
  const auto pages = make_pages(small_format(), 17, 200);
  const auto verdicts = f.put_all(pages);
  const auto stored = std::ranges::count(verdicts, PageVerdict::kDone);
  EXPECT_GT(stored, 80);
  EXPECT_EQ(stored, f.lookup(pages));
  EXPECT_EQ(std::ranges::count(verdicts, PageVerdict::kRefused), 200 - stored);
}

TEST(DiskPageStore, TooSmallALimitIsRefused) {
  DiskStoreFixture f(18);
  const auto opened = DiskPageStore::open(f.disk.open(), f.clock, {.bytes_max = 1000});
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, ErrorCode::kInvalidArgument);
}

// Fault 16, the store's part: the pages are unreachable because their keys are, and the log says
// which field differs from what lies here.
TEST(DiskPageStore, ForeignPagesAreReportedWithTheFieldThatDiffers) {
  DiskStoreFixture f(19);
  ASSERT_TRUE(f.open());
  const TestPage page(small_format(), 19);
  const NamespaceDigest digest = page.identity().namespace_digest;
  f.store->describe(digest, "model=scribe dtype=f16 rope=10000 page_size=16");
  f.put(page);
  for (const auto& [description, field] :
       {std::pair{"model=scribe dtype=bf16 rope=10000 page_size=16", "dtype: f16 -> bf16"},
        {"model=scribe dtype=f16 rope=500000 page_size=16", "rope: 10000 -> 500000"},
        {"model=other dtype=f16 rope=10000 page_size=16", "model: scribe -> other"},
        {"model=scribe dtype=f16 rope=10000 page_size=64", "page_size: 16 -> 64"}}) {
    ASSERT_TRUE(f.open());
    std::string lines;
    set_log_sink([&](LogLevel, std::string_view line) { lines += std::string(line) + "\n"; });
    NamespaceDigest other = digest;
    other.bytes[31] = 1;
    f.store->describe(other, description);
    f.lookup(std::span(&page, 1));
    EXPECT_THAT(lines, HasSubstr("tier.disk.foreign_pages"));
    EXPECT_THAT(lines, HasSubstr(std::string("differs=\"") + field + "\""));
    lines.clear();
    f.store->describe(digest, "model=scribe dtype=f16 rope=10000 page_size=16");
    f.lookup(std::span(&page, 1));
    EXPECT_THAT(lines, Not(HasSubstr("foreign")));
    set_log_sink({});
  }
}

// The model's own pages, of which there may be none, and those of its adapters.
TEST(DiskPageStore, PagesOfAnyNamespaceThatWasDescribedAreNotForeign) {
  DiskStoreFixture f(19);
  ASSERT_TRUE(f.open());
  const TestPage page(small_format(), 19);
  const NamespaceDigest adapters = page.identity().namespace_digest;
  NamespaceDigest models = adapters;
  models.bytes[31] = 1;
  for (int life = 0; life < 2; ++life) {
    std::string lines;
    set_log_sink([&](LogLevel, std::string_view line) { lines += std::string(line) + "\n"; });
    f.store->describe(models, "model=scribe");
    f.store->describe(adapters, "adapter=poet model=scribe");
    if (life == 0) f.put(page);
    f.lookup(std::span(&page, 1));
    set_log_sink({});
    EXPECT_THAT(lines, Not(HasSubstr("foreign"))) << "life " << life;
    ASSERT_TRUE(f.open());
  }
}

// Fault 27.
TEST(DiskPageStore, AJumpOfTheWallClockChangesNothing) {
  DiskStoreFixture f(20);
  ASSERT_TRUE(f.open());
  const auto pages = make_pages(small_format(), 20, 30);
  for (std::size_t i = 0; i < pages.size(); ++i) {
    f.disk.wall_time_s = i % 2 == 0 ? 4'000'000'000 : -5;
    EXPECT_EQ(f.put(pages[i]), PageVerdict::kDone);
  }
  EXPECT_EQ(f.count_right(pages), 30);
  ASSERT_TRUE(f.open());
  EXPECT_EQ(f.count_right(pages), 30);
}

// A file of another directory that somebody copied here, and whose slots have another size.
TEST(DiskPageStore, ASecondSlabOfTheSameNumberIsLeftAlone) {
  set_log_sink({});
  DiskStoreFixture f(15);
  ASSERT_TRUE(f.open());
  const auto pages = make_pages(small_format(), 15, 5);
  EXPECT_THAT(f.put_all(pages), Each(PageVerdict::kDone));
  f.store.reset();
  ASSERT_NE(f.disk.file_or_null("slab-0-8192"), nullptr);
  ASSERT_TRUE(f.disk.open()->create("slab-0-90112", DiskAccess::kDirect, f.soon()).ok());
  f.disk.file_or_null("slab-0-90112")->now.resize(90112);
  ASSERT_TRUE(f.open());
  EXPECT_EQ(f.count_right(pages), 5);
  EXPECT_GE(f.store->usage().bytes, f.disk.used_bytes()) << "its bytes count";
  EXPECT_NE(f.disk.file_or_null("slab-0-90112"), nullptr);
}

// However high the number of a slab is that somebody put there, those that are made beside it are
// found again.
TEST(DiskPageStore, SlabsOfAnyNumberAreFoundAgain) {
  set_log_sink({});
  for (const std::string number : {"7", "1073741824", "1073741825", "2147483647"}) {
    SCOPED_TRACE(number);
    DiskStoreFixture f(16);
    ASSERT_TRUE(f.open());
    const auto pages = make_pages(small_format(), 16, 60);
    f.put(pages[0]);
    f.store.reset();
    ASSERT_TRUE(f.disk.open()->rename("slab-0-8192", "slab-" + number + "-8192", f.soon()).ok());
    for (int life = 0; life < 2; ++life) {
      ASSERT_TRUE(f.open());
      f.put_all(pages);
      EXPECT_EQ(f.count_right(pages), 60);
      EXPECT_EQ(f.store->usage().bytes, f.disk.used_bytes());
    }
    EXPECT_TRUE(f.store->purge({}, f.soon()).status.ok());
    EXPECT_EQ(f.disk.names(), std::vector<std::string>{"index"});
  }
}

TEST(DiskPageStore, ALostIndexIsMadeAnewFromTheFrames) {
  DiskStoreFixture f(21);
  ASSERT_TRUE(f.open());
  const auto pages = make_pages(small_format(), 21, 30);
  f.put_all(pages);
  PageFormat long_pages = small_format();
  long_pages.page_size = 2048;  // whose tokens do not fit the first 4096 bytes
  const auto long_one = make_pages(long_pages, 22, 2);
  f.put_all(long_one);
  f.store.reset();
  f.lose_index();
  ASSERT_TRUE(f.open());
  EXPECT_EQ(f.count_right(pages), 30);
  EXPECT_EQ(f.count_right(long_one), 2);
}

// Two threads on a real directory: one writes, one reads and removes, both look up. The one writes
// until the other has read something.
TEST(DiskPageStoreThreads, ReadsAndWritesRunAtOnce) {
  const TempDirectory directory;
  const MonotonicClock clock;
  auto store = DiskPageStore::open(directory.file("cache"), clock,
                                   {.bytes_max = 1 << 20, .slab_bytes = 128 << 10});
  ASSERT_TRUE(store.ok()) << to_string(store.error());
  const auto pages = make_pages(small_format(), 30, 160);
  constexpr std::int64_t kNoDeadline = std::int64_t{1} << 60;
  std::atomic<bool> done = false;
  std::atomic<std::int64_t> right = 0;
  std::int64_t wrong = 0;
  std::thread reader([&] {
    for (std::size_t i = 0; !done; i = (i + 1) % pages.size()) {
      const Served served = serve(**store, pages[i], kNoDeadline);
      right += served == Served::kRight ? 1 : 0;
      wrong += served == Served::kWrong || served == Served::kRefusedByReader ? 1 : 0;
      const PageRemoval removal{pages[i].key(), pages[i].frame()};
      if (i % 16 == 0) (*store)->remove(std::span(&removal, 1), kNoDeadline);
    }
  });
  for (int round = 0; round < 3 || (right == 0 && round < 10'000); ++round) {
    for (std::size_t i = 0; i + 8 <= pages.size(); i += 8) {
      std::vector<PageWrite> writes;
      for (std::size_t page = i; page < i + 8; ++page) {
        writes.push_back({pages[page].key(), pages[page].frame()});
      }
      (*store)->write(writes, kNoDeadline);
      for (const PageWrite& write : writes) EXPECT_EQ(write.verdict, PageVerdict::kDone);
    }
  }
  done = true;
  reader.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(right, 0);
}

// Fault 29, on real files.
TEST(DiskPageStoreFiles, TruncatedAndDeletedSlabsAreMisses) {
  const TempDirectory directory;
  const MonotonicClock clock;
  constexpr std::int64_t kNoDeadline = std::int64_t{1} << 60;
  const DiskPageStoreOptions options = {.bytes_max = 2 << 20, .slab_bytes = 256 << 10};
  auto store = DiskPageStore::open(directory.path(), clock, options);
  ASSERT_TRUE(store.ok()) << to_string(store.error());
  const auto pages = make_pages(small_format(), 31, 64);
  for (const TestPage& page : pages) {
    ASSERT_EQ(put(**store, page, kNoDeadline), PageVerdict::kDone);
  }
  ASSERT_EQ(::truncate(directory.file("slab-0-8192").c_str(), 100'000), 0);
  std::int64_t right = 0;
  for (const TestPage& page : pages) {
    const Served served = serve(**store, page, kNoDeadline);
    EXPECT_TRUE(served == Served::kRight || served == Served::kMiss);
    right += served == Served::kRight ? 1 : 0;
  }
  EXPECT_EQ(right, 32 + 12);
  store->reset();
  ASSERT_EQ(::unlink(directory.file("slab-1-8192").c_str()), 0);
  store = DiskPageStore::open(directory.path(), clock, options);
  ASSERT_TRUE(store.ok());
  right = 0;
  for (const TestPage& page : pages) {
    right += serve(**store, page, kNoDeadline) == Served::kRight ? 1 : 0;
  }
  EXPECT_EQ(right, 12);
  EXPECT_EQ(put(**store, pages[40], kNoDeadline), PageVerdict::kDone);
  EXPECT_EQ(serve(**store, pages[40], kNoDeadline), Served::kRight);
}

}  // namespace
}  // namespace stemma
