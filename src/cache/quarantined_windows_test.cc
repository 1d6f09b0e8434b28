// Windowed pages of a text that is found to be wrong: page stores have them under keys of their
// own, and are asked to remove them as they are the others; until they have, no store is asked for
// them.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "cache/audit_hold.h"
#include "cache/held_copies_fixture.h"

namespace stemma {
namespace {

class QuarantinedWindows : public HeldCopies {
 protected:
  static constexpr std::int64_t kPages = 4;
  static std::vector<TokenId> text() { return {1000, 1001, 1002, 1003}; }

  void SetUp() override {
    open(256, 1, {.windowed_pages = 8});
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
  void end_removals(std::vector<std::pair<LayerGroup, std::int64_t>>& removed) {
    const auto note = [&](const Transfer& job) {
      if (job.kind == TransferKind::kRemove) removed.emplace_back(job.group, job.pages());
      return job.kind == TransferKind::kRemove;
    };
    while (end_jobs(note) > 0) continue;
  }
  std::int64_t asked_for_windows() {
    std::vector<TokenId> prompt = text();
    prompt.push_back(7);
    kv->try_promote(ns, prompt);
    return posted(TransferKind::kLookup, LayerGroup::kWindowed);
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

TEST_F(QuarantinedWindows, OfOtherTextsAreAskedForAsBefore) {
  lose_windows();
  EXPECT_EQ(asked_for_windows(), 1);
}

}  // namespace
}  // namespace stemma
