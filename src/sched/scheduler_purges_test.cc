// What becomes of requests whose pages turn out to be wrong, or whose namespace is purged.
#include <gtest/gtest.h>

#include <vector>

#include "cache/audit_hold.h"
#include "prefix/namespace_examples.h"
#include "sched/scheduler_fixture.h"

namespace stemma {
namespace {

// A namespace of a tenant that goes on from a text which all share. Its pages are found as soon as
// the shared ones are again.
TEST(SchedulerPurges, NothingIsPublishedThatWasComputedBehindAPageInQuarantine) {
  assume_role(engine_thread);
  Bench bench(options_for(4, 64));
  const SharedPrefix shared = {.digest = digest_of(200), .tokens = 8};
  const NamespaceId own = *bench.kv().try_open_namespace(digest_of(1), &shared);
  Request& request = bench.submit_in(own, 1, text(0, 10), 30);
  for (int i = 0; i < 20; ++i) bench.step();
  const std::vector<TokenId> tokens = request.tokens;
  CachedText cached;
  bench.kv().copy_text(request.sequence, cached);
  bench.kv().quarantine(cached, 8);
  bench.scheduler().requeue_quarantined();
  EXPECT_EQ(request.state(), RequestState::kPreempted);
  bench.scheduler().cancel(request);
  bench.submit_in(own, 2, text(0, 9));
  bench.run();
  EXPECT_EQ(bench.kv().probe(own, tokens), 8);
}

TEST(SchedulerPurges, APurgeIsOfWhoWaitsInItsNamespaces) {
  assume_role(engine_thread);
  EngineOptions options = options_for(4, 64);
  options.kv.requests_max = 1;
  Bench bench(options);
  const NamespaceId purged = *bench.kv().try_open_namespace(digest_of(1));
  const NamespaceId kept = *bench.kv().try_open_namespace(digest_of(2));
  bench.submit(1, text(0, 8), 10);
  bench.step();
  bench.submit_in(purged, 2, text(0, 9));
  bench.submit_in(kept, 3, text(0, 9));
  const NamespaceFamily family = family_of(digest_of(1));
  ASSERT_TRUE(bench.kv().purge({&family, 1}).ok());
  bench.scheduler().note_purged({&family, 1});
  bench.run();
  EXPECT_EQ(bench.kv().probe(purged, text(0, 9)), 0);
  EXPECT_EQ(bench.kv().probe(kept, text(0, 9)), 8);
}

}  // namespace
}  // namespace stemma
