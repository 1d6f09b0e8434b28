// Which requests came before a purge that they are of: by their namespace or that of what they
// share, and by when they were submitted.
#include "engine/noted_purges.h"

#include <gtest/gtest.h>

#include "prefix/namespace_digest.h"
#include "prefix/namespace_examples.h"

namespace stemma {
namespace {

RequestSpec of_tenant(int tenant) {
  RequestSpec spec;
  spec.namespace_digest = digest_of(tenant);
  return spec;
}

void note(NotedPurges& purges, std::int64_t end, int tenant) {
  const NamespaceFamily family = family_of(digest_of(tenant));
  purges.note(RequestId(end), {&family, 1});
}

TEST(NotedPurges, AreOfTheirTenantAndOfThoseThatCameBefore) {
  NotedPurges purges;
  note(purges, 5, 1);
  EXPECT_TRUE(purges.came_before(RequestId(4), of_tenant(1)));
  EXPECT_FALSE(purges.came_before(RequestId(5), of_tenant(1)));
  EXPECT_FALSE(purges.came_before(RequestId(4), of_tenant(2)));
  purges.forget();
  EXPECT_FALSE(purges.came_before(RequestId(4), of_tenant(1)));
}

TEST(NotedPurges, OfAPrefixAreOfAllThatShareIt) {
  NotedPurges purges;
  note(purges, 5, 1);
  RequestSpec shares = of_tenant(2);
  shares.shared_prefix = SharedPrefix{.digest = digest_of(1), .tokens = 4};
  EXPECT_TRUE(purges.came_before(RequestId(4), shares));
}

// More of them than are kept apart: none of the earlier ones is lost.
TEST(NotedPurges, ManyBecomeOneOfEverything) {
  NotedPurges purges;
  for (int tenant = 1; tenant <= 100; ++tenant) note(purges, 5 + tenant, tenant);
  EXPECT_TRUE(purges.came_before(RequestId(4), of_tenant(1)));
  EXPECT_TRUE(purges.came_before(RequestId(4), of_tenant(100)));
  EXPECT_FALSE(purges.came_before(RequestId(200), of_tenant(100)));
}

}  // namespace
}  // namespace stemma
