// Windowed pages of a text that is found to be wrong: page stores have them under keys of their
// own, and are asked to remove them as they are the others; until they have, no store is asked for
// them.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "cache/audit_hold.h"
#include "cache/held_copies_fixture.h"
#include "prefix/page_key.h"

namespace stemma {
namespace {

class QuarantinedWindows : public HeldCopies {
 protected:
  static constexpr std::int64_t kPages = 4;
  static std::vector<TokenId> text() { return {1000, 1001, 1002, 1003}; }

  void SetUp() override { begin(2); }
  void begin(std::int64_t window_tokens) {
    open(256, 1, {.windowed_pages = 8, .window_tokens = window_tokens});
    publish(1, kPages);
    end_stores();
  }
  // All that the next prompt finds of the text.
  void quarantine() {
    CachedText found;
    kv->copy_text(*kv->begin(ns, text()), found);
    kv->quarantine(found, 1);
    poll();
  }
  // The text again, and others in front of whose windows its own are evicted, above the store.
  void lose_windows() {
    publish(1, kPages);
    for (TokenId other = 100; other < 170; ++other) {
      publish(other, 1);
      end_stores();
    }
  }
  std::int64_t posted(TransferKind kind, LayerGroup group) const {
    const auto is_meant = [&](const Transfer* job) {
      return job->kind == kind && job->group == group;
    };
    return std::ranges::count_if(tiers->lanes().posted, is_meant);
  }
  // So do purges of what lies behind.
  static bool end_well(Transfer& job) {
    if (job.kind == TransferKind::kPurge) job.purge.emplace();
    return job.kind == TransferKind::kPurge || job.kind == TransferKind::kRemove;
  }
  void end_removals(std::vector<std::pair<LayerGroup, std::int64_t>>& removed) {
    const auto note = [&](Transfer& job) {
      if (job.kind == TransferKind::kRemove) removed.emplace_back(job.group, job.pages());
      return end_well(job);
    };
    while (end_jobs(note) > 0) continue;
  }
  void promote() {
    std::vector<TokenId> prompt = text();
    prompt.push_back(7);
    kv->try_promote(ns, prompt);
  }
  std::int64_t asked_for_windows() {
    promote();
    return posted(TransferKind::kLookup, LayerGroup::kWindowed);
  }
  // That stores have it under.
  static PageKey windowed_key(std::size_t page) {
    PageKeyChain chain{NamespaceDigest()};
    const std::vector<TokenId> tokens = text();
    PageKey before = PageKeyHasher::root({});
    for (std::size_t i = 0; i < page; ++i) before = chain.append({&tokens[i], 1});
    PageKeyHasher hasher;
    return hasher.next(hasher.windowed_parent(before), {&tokens[page], 1});
  }
  // All end well, but for one page.
  void end_removals_but(const PageKey& stuck) {
    while (end_jobs([&](Transfer& job) {
             return std::ranges::find(job.keys, stuck) == job.keys.end() && end_well(job);
           }) > 0) {
      continue;
    }
    Transfer& job = *tiers->lanes().posted.front();
    ASSERT_EQ(job.kind, TransferKind::kRemove);
    tiers->lanes().end_next(PageVerdict::kDone);
    const auto at = std::ranges::find(job.keys, stuck) - job.keys.begin();
    job.verdicts[static_cast<std::size_t>(at)] = PageVerdict::kFailed;
    poll();
  }
  // Copies up end well, but for those of windowed pages.
  void end_promotions(const std::vector<PageVerdict>& of_windows) {
    const auto is_copy_up = [](const Transfer* job) { return job->kind == TransferKind::kPromote; };
    end_jobs(
        [&](const Transfer& job) { return is_copy_up(&job) && job.group == LayerGroup::kFull; });
    std::deque<Transfer*>& posted_jobs = tiers->lanes().posted;
    const auto windows = std::ranges::find_if(posted_jobs, is_copy_up);
    ASSERT_NE(windows, posted_jobs.end());
    (*windows)->verdicts = of_windows;
    tiers->lanes().done.push_back(*windows);
    posted_jobs.erase(windows);
    poll();
  }
};

TEST_F(QuarantinedWindows, AreRemovedFromStoresAsTheOthers) {
  quarantine();
  std::vector<std::pair<LayerGroup, std::int64_t>> removed;
  end_removals(removed);
  ASSERT_EQ(removed.size(), 2u);
  EXPECT_NE(removed[0].first, removed[1].first);
  EXPECT_EQ(removed[0].second, kPages);
  EXPECT_EQ(removed[1].second, kPages);
}

TEST_F(QuarantinedWindows, AreNotAskedForUntilTheyHaveBeenRemoved) {
  quarantine();
  lose_windows();
  EXPECT_EQ(asked_for_windows(), 0);
  std::vector<std::pair<LayerGroup, std::int64_t>> removed;
  end_removals(removed);
  EXPECT_EQ(asked_for_windows(), 1);
}

// What host memory had when stores were asked for the rest, and has no more when its turn comes.
TEST_F(QuarantinedWindows, ThatWentFromHostMemoryMeanwhileAreNotTakenFromAStoreEither) {
  begin(/*window_tokens=*/3);
  quarantine();
  end_removals_but(windowed_key(2));
  publish(1, kPages);  // computed anew
  end_stores();
  kv->evict(kPages);
  promote();
  end_promotions({PageVerdict::kFailed, PageVerdict::kCorrupt});  // host memory has page 2's alone
  ASSERT_EQ(asked_for_windows(), 1) << "and the store is asked for the other";
  for (TokenId other = 100; other < 110; ++other) publish(other, 1);  // nor has it that any more
  end_jobs([](Transfer& job) {
    const bool is_meant = job.kind == TransferKind::kLookup;
    if (is_meant) job.found_pages = job.pages();
    return is_meant;
  });
  EXPECT_EQ(posted(TransferKind::kLoad, LayerGroup::kWindowed), 0);
}

// What was computed anew has come down before them.
TEST_F(QuarantinedWindows, ThatAreOnTheirWayDownHangOnNothing) {
  const auto end_full_backups = [&] {
    end_jobs([](const Transfer& job) {
      return job.kind == TransferKind::kBackup && job.group == LayerGroup::kFull;
    });
  };
  compute(2, kPages);
  end_full_backups();
  ASSERT_EQ(posted(TransferKind::kBackup, LayerGroup::kWindowed), 1);
  const auto is_window = [](const Transfer* job) { return job->group == LayerGroup::kWindowed; };
  const Transfer* const wrong = *std::ranges::find_if(tiers->lanes().posted, is_window);
  kv->quarantine({.ns = ns, .digest = {}, .tokens = {2000, 2001, 2002, 2003}, .shared = {}}, 1);
  compute(2, kPages);
  end_full_backups();
  const std::int64_t before = metric("stemma_windowed_backed_up_pages_total");
  end_jobs([&](const Transfer& job) { return &job == wrong; });
  EXPECT_EQ(metric("stemma_windowed_backed_up_pages_total"), before);
}

TEST_F(QuarantinedWindows, OfOtherTextsAreAskedForAsBefore) {
  lose_windows();
  EXPECT_EQ(asked_for_windows(), 1);
}

}  // namespace
}  // namespace stemma
