// A wrong page that all share takes what was computed behind it, however it was found.
#include <gtest/gtest.h>

#include <vector>

#include "cache/audit_hold.h"
#include "cache/held_copies_fixture.h"
#include "prefix/namespace_examples.h"

namespace stemma {
namespace {

//   shared 4 | tenant 1: 2
//            | tenant 2: 2 ...
class QuarantinedGrafts : public HeldCopies {
 protected:
  static SharedPrefix prefix() { return {digest_of(200), 4}; }
  static NamespaceDigest tenant(int number) { return digest_of(number); }
  static std::vector<TokenId> text(int number) {
    std::vector<TokenId> tokens = {1, 2, 3, 4};
    for (int i = 0; i < 2; ++i) tokens.push_back(1000 * number + i);
    return tokens;
  }
  static std::vector<TokenId> asked(int number) {
    std::vector<TokenId> tokens = text(number);
    tokens.push_back(0);
    return tokens;
  }
  NamespaceId open_tenant(int number) {
    const SharedPrefix shared = prefix();
    return *kv->try_open_namespace(tenant(number), &shared);
  }
  NamespaceId open_shared() { return *kv->try_open_namespace(prefix().digest); }
  void compute_in(NamespaceId where, const std::vector<TokenId>& tokens) {
    ns = where;
    compute(tokens);
    end_backups();
    while (end_stores() > 0) {
    }
  }
  CachedText shared_text(NamespaceId shared) const {
    return {.ns = shared, .digest = prefix().digest, .tokens = {1, 2, 3, 4}, .shared = {}};
  }
  // Families of the purges that stores are asked for now; none: all.
  std::vector<std::size_t> purges() {
    poll();
    std::vector<std::size_t> families;
    for (const Transfer* job : tiers->lanes().posted) {
      if (job->kind == TransferKind::kPurge) families.push_back(job->namespaces.size());
    }
    return families;
  }
};

TEST_F(QuarantinedGrafts, APageThatIsFoundInItsOwnNamespaceTakesWhatIsBehindIt) {
  open(64);
  const NamespaceId shared = open_shared();
  const NamespaceId own = open_tenant(1);
  compute_in(own, text(1));
  ASSERT_EQ(kv->probe(own, asked(1)), 6);
  kv->quarantine(shared_text(shared), 2);
  EXPECT_EQ(purges(), std::vector<std::size_t>{0}) << "of all";
  compute_in(shared, {1, 2, 3, 4});  // right now
  EXPECT_EQ(kv->probe(own, asked(1)), 4);
  EXPECT_EQ(kv->probe_host(own, asked(1)), 4);
}

// In this life nobody has gone on from it, which says nothing about earlier ones.
TEST_F(QuarantinedGrafts, WhoGoesOnFromItOnlyLaterFindsNothingOfEarlierLives) {
  open(64);
  const NamespaceId shared = open_shared();
  compute_in(shared, {1, 2, 3, 4});
  kv->quarantine(shared_text(shared), 2);
  EXPECT_EQ(purges(), std::vector<std::size_t>{1}) << "of its own family";
  open_tenant(1);
  EXPECT_EQ(metric("stemma_pending_purges"), 2);
  open_tenant(2);
  EXPECT_EQ(metric("stemma_pending_purges"), 2) << "once";
}

TEST_F(QuarantinedGrafts, WhoGoesOnBeforeItLosesNothing) {
  open(64);
  const NamespaceId shared = open_shared();
  const SharedPrefix shorter = {prefix().digest, 1};
  const NamespaceId own = *kv->try_open_namespace(tenant(1), &shorter);
  compute_in(own, text(1));
  compute_in(shared, {1, 2, 3, 4});
  kv->quarantine(shared_text(shared), 2);
  EXPECT_EQ(purges(), std::vector<std::size_t>{1});
  EXPECT_EQ(kv->probe(own, asked(1)), 6);
}

TEST_F(QuarantinedGrafts, HoweverManyTenantsGoOnFromItStoresForgetOnce) {
  constexpr int kTenants = 70;  // more than purges can be remembered
  open(128);
  const NamespaceId shared = open_shared();
  for (int number = 1; number <= kTenants; ++number) {
    compute_in(open_tenant(number), text(number));
  }
  kv->quarantine(shared_text(shared), 2);
  EXPECT_EQ(metric("stemma_pending_purges"), 1);
  const NamespaceFamily other = family_of(digest_of(100));
  EXPECT_TRUE(kv->purge({&other, 1}).ok());
}

}  // namespace
}  // namespace stemma
