// What goes on from a page that was found to be wrong: nothing of it is asked of a store, or stored
// there, until the store has forgotten what lies behind; then it is a text as any other.
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <vector>

#include "cache/audit_hold.h"
#include "cache/held_copies_fixture.h"
#include "prefix/page_key.h"

namespace stemma {
namespace {

// A beginning that many share, of which the last page is wrong, in host memory and in a store.
class QuarantinedTexts : public HeldCopies {
 protected:
  static std::vector<TokenId> beginning() { return {1, 2, 3, 4}; }
  static constexpr std::int64_t kOwnPages = 3;

  void SetUp() override {
    open<MapStore>(64);
    compute(beginning());
    end_backups();
    while (end_stores() > 0) continue;
    std::vector<TokenId> asked = beginning();
    asked.push_back(0);
    CachedText found;
    kv->copy_text(*kv->begin(ns, asked), found);
    kv->quarantine(found, std::ssize(beginning()));
    poll();
  }
  std::int64_t posted(TransferKind kind) const {
    return std::ranges::count(tiers->lanes().posted, kind, &Transfer::kind);
  }
  void end_removals() {
    while (end_jobs([](const Transfer& job) { return job.kind == TransferKind::kRemove; }) > 0) {
      continue;
    }
  }
  void end_purge() {
    end_jobs([](Transfer& job) {
      if (job.kind == TransferKind::kPurge) job.purge.emplace();
      return job.kind == TransferKind::kPurge;
    });
  }
  // The beginning, computed anew, and pages of its own.
  static std::vector<TokenId> text(TokenId number) {
    std::vector<TokenId> tokens = beginning();
    for (TokenId i = 0; i < kOwnPages; ++i) tokens.push_back(1000 * number + i);
    return tokens;
  }
  // Whether the store, which has that text, is asked for pages of it.
  bool is_loaded(TokenId number) {
    std::vector<TokenId> tokens = text(number);
    PageKeyChain chain(NamespaceDigest{});
    auto& store = *static_cast<MapStore*>(tiers->stores()[0]);
    for (const TokenId& token : tokens) store.frames[chain.append({&token, 1})] = {};
    tokens.push_back(0);
    const auto id = kv->try_promote(ns, tokens);
    const bool loaded = posted(TransferKind::kLoad) > 0;
    end_jobs([](const Transfer& job) {
      return job.kind == TransferKind::kLoad || job.kind == TransferKind::kPromote;
    });
    if (id.has_value()) kv->release_promotion(*id, PromotionUse::kWaiting);
    return loaded;
  }
};

TEST_F(QuarantinedTexts, AreLeftAloneUntilTheStoreHasForgottenWhatLiesBehind) {
  end_removals();
  EXPECT_EQ(metric("stemma_wrong_stored_pages"), 0);
  ASSERT_EQ(metric("stemma_pending_purges"), 1);
  EXPECT_FALSE(is_loaded(1));
  compute(text(2));
  end_backups();
  EXPECT_EQ(posted(TransferKind::kStore), 0);
  end_purge();
  EXPECT_TRUE(is_loaded(1));
}

TEST_F(QuarantinedTexts, AreTextsAsAnyOtherAfterwards) {
  end_purge();
  end_removals();
  compute(beginning());  // right now
  end_backups();
  while (end_stores() > 0) continue;
  for (TokenId number = 1; number <= 20; ++number) {
    EXPECT_TRUE(is_loaded(number)) << number;
    EXPECT_EQ(posted(TransferKind::kRemove), 0);
    compute(text(100 + number));
    end_backups();
    EXPECT_EQ(end_stores(), 1);
    kv->evict(256);
  }
  EXPECT_EQ(metric("stemma_wrong_stored_pages"), 0);
}

}  // namespace
}  // namespace stemma
