// The file of host memory under purges and quarantines: what is not to be found again has gone from
// it before anybody is told so; a file that cannot be removed is tried again, of every rank.
// Fault: row 3 (docs/FAULTS.md).
#include "cache/host_file.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "base/temp_directory.h"
#include "cache/audit_hold.h"
#include "cache/held_copies_fixture.h"
#include "cache/keyed_pages_fixture.h"
#include "stemma/log.h"

namespace stemma {
namespace {

// Other ranks, one of which cannot remove its file.
class StubbornRanks final : public HostImageRanks {
 public:
  bool begin_load() override { return false; }
  std::int64_t load(const Transfer&) override { return 0; }
  void end_load() override {}
  void begin_save() override {}
  void save(const Transfer&) override {}
  void drop_save() override {}
  Status end_save() override { return {}; }
  Status remove() override {
    ++asked;
    return stubborn ? Status(Error{ErrorCode::kIo, "on purpose"}) : Status();
  }

  bool stubborn = true;
  int asked = 0;
};

class HostFileTest : public HeldCopies {
 protected:
  void SetUp() override {
    set_log_level(LogLevel::kError);
    std::ofstream(path) << "STEMHOST: what an earlier life saved";
    ranks.stubborn = false;
  }
  void TearDown() override { set_log_level(LogLevel::kInfo); }

  void open_with_file() { open(16, 0, {.image_or_null = &image, .ranks_or_null = &ranks}); }
  // Host memory has the text, and a store that never answers is to get it.
  void copy_before_a_store_that_hangs(const std::vector<TokenId>& tokens) {
    image.label.format.page_size = 1;
    open(16, 1, {.image_or_null = &image});
    compute(tokens);
    const Transfer& backup = *tiers->lanes().posted.front();
    for (std::size_t i = 0; i < backup.keys.size(); ++i) keyed.put(backup.to[i], backup.keys[i]);
    end_backups();
  }
  std::vector<Tier> pending(PurgeId id) const { return kv->purge_report(id)->pending; }

  TempDirectory directory;
  std::string path = directory.file("host");
  KeyedPages keyed{16, 0};
  HostImage image = keyed.image(path, digest_of(200));
  StubbornRanks ranks;
};

TEST_F(HostFileTest, APurgeIsConfirmedWhenTheFileHasGone) {
  open_with_file();
  EXPECT_TRUE(pending(*kv->purge({})).empty());
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(HostFileTest, APurgeIsNotConfirmedBeforeTheFileHasGone) {
  ranks.stubborn = true;
  open_with_file();
  const PurgeId id = *kv->purge({});
  EXPECT_EQ(pending(id), std::vector{Tier::kHost});
  EXPECT_EQ(metric("stemma_host_file_not_removed"), 1);
  EXPECT_FALSE(kv->purge_report(PurgeId(id.value() + 1)).has_value()) << "nobody asked for it";
  clock.advance_us(kDeadlineUs - 1);
  poll();
  EXPECT_EQ(ranks.asked, 1) << "it is left alone for a while";
  clock.advance_us(1);
  poll();
  EXPECT_EQ(ranks.asked, 2);
  EXPECT_EQ(pending(id), std::vector{Tier::kHost});
  ranks.stubborn = false;
  clock.advance_us(2 * kDeadlineUs);
  poll();
  EXPECT_TRUE(pending(id).empty());
  EXPECT_EQ(metric("stemma_host_file_not_removed"), 0);
}

// As is one that so many others followed that the stores' part of it is forgotten.
TEST_F(HostFileTest, NoneOfManyPurgesIsConfirmedBeforeTheFileHasGone) {
  ranks.stubborn = true;
  open_with_file();
  const PurgeId first = *kv->purge({});
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(kv->purge({}).ok());
  EXPECT_EQ(pending(first), std::vector{Tier::kHost});
}

TEST_F(HostFileTest, AFileThatIsWrittenAnewHasNothingOfAPurge) {
  ranks.stubborn = true;
  open_with_file();
  const PurgeId id = *kv->purge({});
  kv->settle(clock.now_us() + 1);
  EXPECT_TRUE(pending(id).empty());
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST_F(HostFileTest, WhatAStoreThatHangsHoldsIsSavedAllTheSame) {
  copy_before_a_store_that_hangs({1, 2, 3, 4});
  ASSERT_EQ(tiers->lanes().posted.size(), 1u) << "the store's job";
  kv->settle(clock.now_us());
  EXPECT_EQ(metric("stemma_host_file_saved_pages"), 4);
}

// The store reads it until its job ends; the next life is not to find it.
TEST_F(HostFileTest, OfWhatAStoreThatHangsHoldsNothingInQuarantineIsSaved) {
  copy_before_a_store_that_hangs({1, 2, 3, 4});
  kv->quarantine({.ns = ns, .digest = {}, .tokens = {1, 2, 3, 4}, .shared = {}}, 1);
  kv->settle(clock.now_us());
  EXPECT_EQ(metric("stemma_host_file_saved_pages"), 0);
}

// A life that is killed after it would find the wrong page again, with the right sums.
TEST_F(HostFileTest, WhatIsInQuarantineGoesFromTheFileToo) {
  open_with_file();
  CachedText text;
  {
    const std::vector<TokenId> tokens = {1, 2, 3, 4};
    compute(tokens);
    const auto found = kv->begin(ns, tokens);
    kv->copy_text(*found, text);
  }
  kv->quarantine(text, std::ssize(text.tokens));
  EXPECT_FALSE(std::filesystem::exists(path));
}

//   shared 4 | tenant 1: 2
//            | tenant 2: 2     all of an earlier life
// Who comes first has it known that others go on from the wrong page; what these have in host
// memory was computed behind it too.
TEST_F(HostFileTest, WhatItBroughtFromBehindAWrongSharedPageIsFoundByNobody) {
  image.label.format.page_size = 1;
  const SharedPrefix shared = {digest_of(100), 4};
  const auto open_life = [&] {
    kv.reset();
    open(16, 0, {.image_or_null = &image});
  };
  const auto tenant = [&](int number) {
    return *kv->try_open_namespace(digest_of(number), &shared);
  };
  const auto text_of = [](TokenId number) {
    return std::vector<TokenId>{1, 2, 3, 4, 1000 * number, 1000 * number + 1, 0};
  };
  open_life();
  for (const int number : {1, 2}) {
    ns = tenant(number);
    const std::vector<TokenId> text = text_of(number);
    compute({text.begin(), text.end() - 1});
    for (const Transfer* backup : tiers->lanes().posted) {
      for (std::size_t i = 0; i < backup->keys.size(); ++i) {
        keyed.put(backup->to[i], backup->keys[i]);
      }
    }
    end_backups();
  }
  kv->settle(clock.now_us());
  for (const bool wrong : {false, true}) {
    open_life();
    ns = *kv->try_open_namespace(shared.digest);
    if (wrong) {
      const CachedText page = {
          .ns = ns, .digest = shared.digest, .tokens = {1, 2, 3, 4}, .shared = {}};
      kv->quarantine(page, 2);
      compute({1, 2, 3, 4});
      end_backups();
    }
    for (const int number : {1, 2}) {
      EXPECT_EQ(kv->probe_host(tenant(number), text_of(number)), wrong ? 4 : 6) << number;
    }
  }
}

}  // namespace
}  // namespace stemma
