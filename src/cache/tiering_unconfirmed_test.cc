// What a store has not confirmed to have forgotten when a life ends, the next one does not find
// there either. Lives follow one another here over one purge file; a store that is down ends no
// job.
#include <gtest/gtest.h>

#include <cerrno>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/refused_calls.h"
#include "base/temp_directory.h"
#include "cache/audit_hold.h"
#include "cache/held_copies_fixture.h"
#include "cache/keyed_pages_fixture.h"
#include "prefix/namespace_examples.h"
#include "stemma/log.h"
#include "tier/purge_file.h"

namespace stemma {
namespace {

class UnconfirmedTest : public HeldCopies {
 protected:
  void SetUp() override { set_log_level(LogLevel::kError); }
  void TearDown() override {
    end_life();
    set_log_level(LogLevel::kInfo);
  }

  void begin_life(std::size_t stores = 1, HeldLaneHost host = {}) {
    file = PurgeFile::open(path).value();
    host.purge_file_or_null = file.get();
    open(64, stores, host);
  }
  void end_life() {
    kv.reset();
    tiers.reset();
    file.reset();
  }
  void begin_next_life(std::size_t stores = 1) {
    end_life();
    begin_life(stores);
    poll();
  }
  // The process is killed: the file is as it was then.
  void kill_life() {
    const std::string said = bytes();
    end_life();
    std::ofstream(path, std::ios::binary) << said;
  }
  std::string bytes() const {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  bool says_nothing() const { return *file->said_or_null() == Unconfirmed(); }
  // What becomes less is not written sooner.
  void wait_for_less() {
    clock.advance_us(10'000'000);
    poll();
  }

  std::vector<const Transfer*> jobs(TransferKind kind) {
    std::vector<const Transfer*> found;
    for (const Transfer* job : tiers->lanes().posted) {
      if (job->kind == kind) found.push_back(job);
    }
    return found;
  }
  void end_purges(const PurgeOutcome& outcome) {
    for (Transfer* job : tiers->lanes().posted) {
      if (job->kind == TransferKind::kPurge) job->purge = outcome;
    }
    end_jobs([](const Transfer& job) { return job.kind == TransferKind::kPurge; });
  }
  void end_removals() {
    end_jobs([](const Transfer& job) { return job.kind == TransferKind::kRemove; });
  }
  // How long an end of life waits, of kSettleUs.
  std::int64_t settling_us() {
    tiers->lanes().clock_or_null = &clock;
    const std::int64_t begun_us = clock.now_us();
    kv->settle(begun_us + kSettleUs);
    tiers->lanes().clock_or_null = nullptr;
    return clock.now_us() - begun_us;
  }
  static PurgeOutcome failed() { return {.status = Error{ErrorCode::kIo, "it is down"}}; }

  CachedText text_of(const std::vector<TokenId>& tokens) {
    CachedText text;
    compute(tokens);
    end_backups();
    while (end_stores() > 0) {
    }
    std::vector<TokenId> asked = tokens;
    asked.push_back(0);
    kv->copy_text(*kv->begin(ns, asked), text);
    return text;
  }

  static constexpr std::int64_t kSettleUs = kDeadlineUs / 2;

  TempDirectory directory;
  std::string path = directory.file("purges");
  std::unique_ptr<PurgeFile> file;
};

TEST_F(UnconfirmedTest, APurgeOutlivesAnEnd) {
  begin_life();
  const NamespaceFamily family = family_of(digest_of(1));
  ASSERT_TRUE(kv->purge({&family, 1}).ok());
  begin_next_life();
  const auto asked = jobs(TransferKind::kPurge);
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0]->namespaces, std::vector{family});
  EXPECT_EQ(metric("stemma_pending_purges"), 1);
  end_purges({});
  begin_next_life();
  EXPECT_TRUE(jobs(TransferKind::kPurge).empty());
  EXPECT_TRUE(says_nothing());
}

TEST_F(UnconfirmedTest, AnEndWaitsForNoStoreThatFails) {
  begin_life();
  ASSERT_TRUE(kv->purge({}).ok());
  poll();
  end_purges(failed());
  poll();
  EXPECT_EQ(settling_us(), 0);
  begin_next_life();
  EXPECT_EQ(jobs(TransferKind::kPurge).size(), 1u);
}

TEST_F(UnconfirmedTest, AnEndWaitsForAStoreThatMayConfirm) {
  begin_life();
  ASSERT_TRUE(kv->purge({}).ok());
  poll();
  EXPECT_GE(settling_us(), kSettleUs) << "it has not been heard of";
  end_purges({.pages = 5, .status = Error{ErrorCode::kDeadline, "more is to be done"}});
  EXPECT_GE(settling_us(), kSettleUs) << "it gets on";
}

TEST_F(UnconfirmedTest, WithoutAFileAnEndWaitsForStoresThatFailToo) {
  open(64);
  ASSERT_TRUE(kv->purge({}).ok());
  poll();
  end_purges(failed());
  poll();
  EXPECT_GE(settling_us(), kSettleUs);
}

// Before any store is asked for it.
TEST_F(UnconfirmedTest, APurgeOutlivesAKillFromWhenItIsAskedFor) {
  begin_life();
  const NamespaceFamily family = family_of(digest_of(1));
  ASSERT_TRUE(kv->purge({&family, 1}).ok());
  EXPECT_TRUE(jobs(TransferKind::kPurge).empty());
  kill_life();
  begin_life();
  poll();
  ASSERT_EQ(jobs(TransferKind::kPurge).size(), 1u);
  EXPECT_EQ(jobs(TransferKind::kPurge)[0]->namespaces, std::vector{family});
}

TEST_F(UnconfirmedTest, WhatIsConfirmedIsForgottenAfterAWhile) {
  begin_life();
  ASSERT_TRUE(kv->purge({}).ok());
  poll();
  end_purges({});
  EXPECT_FALSE(says_nothing());
  wait_for_less();
  EXPECT_TRUE(says_nothing());
}

// Whoever asks again and again would keep the engine's thread waiting for the disk.
TEST_F(UnconfirmedTest, TheSamePurgeIsWrittenOnceInAWhile) {
  begin_life();
  const NamespaceFamily family = family_of(digest_of(1));
  ASSERT_TRUE(kv->purge({&family, 1}).ok());
  poll();
  end_purges({});
  std::filesystem::create_directory(path + ".new");
  for (int again = 0; again < 3; ++again) {
    ASSERT_TRUE(kv->purge({&family, 1}).ok());
    poll();
    end_purges({});
  }
  EXPECT_EQ(metric("stemma_purge_file_not_written"), 0) << "nobody tried";
}

// The name is that of a file which says nothing, though it could not be made durable.
TEST_F(UnconfirmedTest, WhatWasHalfForgottenIsWrittenAgain) {
  begin_life();
  const NamespaceFamily family = family_of(digest_of(1));
  ASSERT_TRUE(kv->purge({&family, 1}).ok());
  poll();
  end_purges({});
  bool refuses = false;
  std::thread([&] {
    refuses = refuse_opening_directories(EIO);
    if (refuses) wait_for_less();
  }).join();
  if (!refuses) GTEST_SKIP() << "this system allows no seccomp filter";
  EXPECT_EQ(metric("stemma_purge_file_not_written"), 1);
  ASSERT_TRUE(kv->purge({&family, 1}).ok());
  wait_for_less();
  EXPECT_EQ(metric("stemma_purge_file_not_written"), 0);
  kill_life();
  begin_life();
  poll();
  EXPECT_EQ(jobs(TransferKind::kPurge).size(), 1u);
}

TEST_F(UnconfirmedTest, AWrongPageOutlivesAKill) {
  begin_life();
  kv->quarantine(text_of({1, 2, 3, 4}), 2);
  poll();
  std::vector<PageKey> keys;
  for (const Transfer* job : jobs(TransferKind::kRemove)) {
    keys.insert(keys.end(), job->keys.begin(), job->keys.end());
  }
  ASSERT_EQ(keys.size(), 3u) << "it, and what is behind it";
  kill_life();
  begin_life();
  poll();
  ASSERT_EQ(jobs(TransferKind::kRemove).size(), 1u);
  EXPECT_EQ(jobs(TransferKind::kRemove)[0]->keys, keys);
  ASSERT_EQ(jobs(TransferKind::kPurge).size(), 1u);
  EXPECT_EQ(jobs(TransferKind::kPurge)[0]->first_page, 1);
  end_removals();
  EXPECT_EQ(file->said_or_null()->removals.size(), 1u);
  end_purges({});
  wait_for_less();
  EXPECT_TRUE(file->said_or_null()->removals.empty());
  EXPECT_TRUE(file->said_or_null()->purges.empty());
}

// Both are called "disk:map", and which of them it was is not known any more.
TEST_F(UnconfirmedTest, StoresThatAreAlikeAreAskedForOneAnother) {
  begin_life(2);
  ASSERT_TRUE(kv->purge({}).ok());
  poll();
  for (Transfer* job : tiers->lanes().posted) {
    job->purge = job->store == 0 ? failed() : PurgeOutcome();
  }
  end_jobs([](const Transfer& job) { return job.kind == TransferKind::kPurge; });
  begin_next_life(2);
  EXPECT_EQ(jobs(TransferKind::kPurge).size(), 2u);
}

TEST_F(UnconfirmedTest, AStoreThatIsNotThereIsAskedWhenItIsBack) {
  begin_life();
  ASSERT_TRUE(kv->purge({}).ok());
  begin_next_life(0);
  EXPECT_EQ(metric("stemma_pending_purges"), 0);
  begin_next_life(1);
  EXPECT_EQ(metric("stemma_pending_purges"), 1);
}

// Nothing of it is looked up there in any life.
TEST_F(UnconfirmedTest, AStoreThatCannotBePurgedIsBarredInEveryLife) {
  begin_life();
  const NamespaceFamily family = family_of(digest_of(1));
  ASSERT_TRUE(kv->purge({&family, 1}).ok());
  poll();
  for (int life = 0; life < 3; ++life) {
    ASSERT_EQ(jobs(TransferKind::kPurge).size(), 1u) << life;
    EXPECT_EQ(jobs(TransferKind::kPurge)[0]->namespaces, std::vector{family});
    end_purges({.status = Error{ErrorCode::kUnsupported, "it cannot"}});
    EXPECT_FALSE(says_nothing());
    kill_life();
    begin_life();
    poll();
  }
}

// As it was in one life, so in the next: nobody had gone on from it yet.
TEST_F(UnconfirmedTest, AWrongSharedPageIsKnownToTheNextLife) {
  begin_life();
  ns = *kv->try_open_namespace(digest_of(200));
  kv->quarantine(text_of({1, 2, 3, 4}), 2);
  poll();
  end_removals();
  end_purges({});
  wait_for_less();
  kill_life();
  begin_life();
  poll();
  EXPECT_TRUE(jobs(TransferKind::kPurge).empty());
  const SharedPrefix shared = {digest_of(200), 4};
  ASSERT_TRUE(kv->try_open_namespace(digest_of(1), &shared).has_value());
  poll();
  ASSERT_EQ(jobs(TransferKind::kPurge).size(), 1u);
  EXPECT_TRUE(jobs(TransferKind::kPurge)[0]->namespaces.empty()) << "of all";
  end_purges({});
  wait_for_less();
  EXPECT_TRUE(says_nothing());
}

TEST_F(UnconfirmedTest, WhereTheFileIsDamagedEverythingIsForgotten) {
  begin_life();
  const NamespaceFamily family = family_of(digest_of(1));
  ASSERT_TRUE(kv->purge({&family, 1}).ok());
  end_life();
  std::ofstream(path, std::ios::binary) << "STEMPURG and no more";
  begin_life();
  poll();
  ASSERT_EQ(jobs(TransferKind::kPurge).size(), 1u);
  EXPECT_TRUE(jobs(TransferKind::kPurge)[0]->namespaces.empty()) << "of all";
  ASSERT_NE(file->said_or_null(), nullptr) << "it is whole again";
  EXPECT_EQ(file->said_or_null()->purges.size(), 1u);
  end_purges({});
  wait_for_less();
  EXPECT_TRUE(says_nothing());
}

TEST_F(UnconfirmedTest, AFileOfHostMemoryThatCouldNotGoIsNotRead) {
  const std::string host_path = directory.file("host");
  KeyedPages keyed{64, 0};
  HostImage image = keyed.image(host_path, digest_of(200));
  image.label.format.page_size = 1;
  begin_life(1, {.image_or_null = &image});
  Unconfirmed said;
  said.host_file = true;
  end_life();
  ASSERT_TRUE(PurgeFile::open(path).value()->keep(said).ok());
  std::ofstream(host_path) << "STEMHOST: what was to go";
  begin_life(1, {.image_or_null = &image});
  EXPECT_FALSE(std::filesystem::exists(host_path));
  wait_for_less();
  EXPECT_TRUE(says_nothing());
}

TEST_F(UnconfirmedTest, WhatCannotBeWrittenIsTriedAgain) {
  begin_life();
  std::filesystem::create_directory(path + ".new");
  kv->quarantine(text_of({1, 2}), 1);
  poll();
  EXPECT_EQ(metric("stemma_purge_file_not_written"), 1);
  std::filesystem::remove(path + ".new");
  poll();
  EXPECT_TRUE(says_nothing()) << "not at once";
  clock.advance_us(10'000'000);
  poll();
  EXPECT_FALSE(says_nothing());
  EXPECT_EQ(metric("stemma_purge_file_not_written"), 0);
}

}  // namespace
}  // namespace stemma
