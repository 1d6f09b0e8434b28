// A wrong page that all share takes what was computed behind it, however it was found.
#include <gtest/gtest.h>

#include <vector>

#include "cache/audit_hold.h"
#include "cache/grafted_copies_fixture.h"

namespace stemma {
namespace {

class QuarantinedGrafts : public GraftedCopies<4> {
 protected:
  NamespaceId open_shared() { return *kv->try_open_namespace(prefix().digest); }
  void compute_in(NamespaceId where, const std::vector<TokenId>& tokens) {
    GraftedCopies::compute_in(where, tokens);
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
  const NamespaceId own = *kv->try_open_namespace(digest_of(1), &shorter);
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

// Of each it is remembered, should somebody go on from it.
TEST_F(QuarantinedGrafts, HoweverManyTenantsHadAWrongPageOthersLoseNothing) {
  constexpr int kTenants = 100;
  open(64);
  for (int number = 1; number <= kTenants; ++number) {
    const NamespaceId own = *kv->try_open_namespace(digest_of(number));
    compute_in(own, {1, 2});
    kv->quarantine({.ns = own, .digest = digest_of(number), .tokens = {1, 2}, .shared = {}}, 2);
    ASSERT_EQ(purges(), std::vector<std::size_t>{1}) << "of its own family, " << number;
    end_jobs([](Transfer& job) {
      if (job.kind == TransferKind::kPurge) job.purge.emplace();
      return job.kind == TransferKind::kPurge || job.kind == TransferKind::kRemove;
    });
  }
}

// The device has given its name away, host memory has not: nobody knows any more what it goes on
// from.
TEST_F(QuarantinedGrafts, WhoHasANameInHostMemoryAloneLosesWhatItHasThere) {
  namespaces_max = 4;  // one is the fixture's
  open(64);
  const NamespaceId shared = open_shared();
  const NamespaceId other = open_tenant(2);
  compute_in(other, text(2));
  const NamespaceId own = open_tenant(1);
  compute_in(own, text(1));
  kv->close_namespace(other);
  kv->close_namespace(own);
  kv->evict(64);
  open_tenant(3);  // takes the name of 1 on the device, that of 2 in host memory
  kv->quarantine(shared_text(shared), 2);
  compute_in(shared, {1, 2, 3, 4});
  const NamespaceId again = open_tenant(1);
  EXPECT_EQ(kv->probe_host(again, asked(1)), 4);
}

// The first who comes back has it known that the page was wrong; what others have in host memory
// was computed behind it too.
TEST_F(QuarantinedGrafts, WhoComesBackSecondFindsNothingOfBeforeEither) {
  namespaces_max = 6;
  open(64);
  const NamespaceId shared = open_shared();
  const NamespaceId first = open_tenant(1);
  compute_in(first, text(1));
  const NamespaceId second = open_tenant(2);
  compute_in(second, text(2));
  for (const int empty : {101, 102}) {
    kv->close_namespace(*kv->try_open_namespace(digest_of(empty)));
  }
  kv->close_namespace(first);
  kv->close_namespace(second);
  kv->evict(64);
  std::vector<NamespaceId> others;
  for (const int other : {103, 104}) others.push_back(*kv->try_open_namespace(digest_of(other)));
  kv->quarantine(shared_text(shared), 2);
  for (const NamespaceId other : others) kv->close_namespace(other);
  compute_in(shared, {1, 2, 3, 4});
  EXPECT_EQ(kv->probe_host(open_tenant(1), asked(1)), 4);
  EXPECT_EQ(kv->probe_host(open_tenant(2), asked(2)), 4);
}

// Its id was that of what others go on from.
TEST_F(QuarantinedGrafts, WhoGetsANameIsNotWhatOthersWentOnFrom) {
  namespaces_max = 4;
  open(64);
  const NamespaceId shared = open_shared();
  kv->close_namespace(open_tenant(1));
  kv->close_namespace(shared);
  int digest = 100;
  NamespaceId other;
  while (other != shared) other = *kv->try_open_namespace(digest_of(++digest));
  compute_in(other, {1, 2, 3, 4});
  const CachedText text = {
      .ns = other, .digest = digest_of(digest), .tokens = {1, 2, 3, 4}, .shared = {}};
  kv->quarantine(text, 2);
  EXPECT_EQ(purges(), std::vector<std::size_t>{1}) << "of its own family";
}

}  // namespace
}  // namespace stemma
