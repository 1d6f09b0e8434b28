// RedisUrl: what each scheme may say, and that a refusal never repeats a password.
#include "store/redis_url.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <string>

namespace stemma {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

RedisUrl parsed(std::string_view text) {
  const auto url = parse_redis_url(text);
  EXPECT_TRUE(url.ok()) << text << ": " << to_string(url.error());
  return url.ok() ? *url : RedisUrl();
}

std::string refusal(std::string_view text) {
  const auto url = parse_redis_url(text);
  EXPECT_FALSE(url.ok()) << text;
  return url.ok() ? "" : to_string(url.error());
}

TEST(RedisUrl, OneServer) {
  const RedisUrl url = parsed("redis://cache.local:7000/3");
  EXPECT_EQ(url.kind, RedisTopologyKind::kSingle);
  EXPECT_THAT(url.endpoints, ElementsAre(RedisEndpoint{"cache.local", 7000}));
  EXPECT_EQ(url.database, 3);
  EXPECT_EQ(url.password, "");
  EXPECT_EQ(parsed("redis://h").endpoints[0].port, 6379);
  EXPECT_EQ(parsed("redis://h:1/").database, 0);
}

TEST(RedisUrl, UserAndPassword) {
  const RedisUrl url = parsed("redis://me:p%40ss:w@rd@h:1");
  EXPECT_EQ(url.user, "me");
  EXPECT_EQ(url.password, "p@ss:w@rd");
  EXPECT_EQ(url.endpoints[0].host, "h");
  EXPECT_EQ(parsed("redis://a%3Ab:secret@h").user, "a:b");
  EXPECT_EQ(parsed("redis://:secret@h").user, "");
  EXPECT_EQ(parsed("redis-cluster://:secret@h1,h2").password, "secret");
}

TEST(RedisUrl, ClusterAndSentinelNameSeveralHosts) {
  const RedisUrl cluster = parsed("redis-cluster://a:1,[::1]:2,c");
  EXPECT_EQ(cluster.kind, RedisTopologyKind::kCluster);
  EXPECT_THAT(cluster.endpoints, ElementsAre(RedisEndpoint{"a", 1}, RedisEndpoint{"::1", 2},
                                             RedisEndpoint{"c", 6379}));
  const RedisUrl sentinel = parsed("redis-sentinel://a:1,b/mymaster");
  EXPECT_EQ(sentinel.kind, RedisTopologyKind::kSentinel);
  EXPECT_THAT(sentinel.endpoints, ElementsAre(RedisEndpoint{"a", 1}, RedisEndpoint{"b", 26379}));
  EXPECT_EQ(sentinel.primary_name, "mymaster");
}

TEST(RedisUrl, UnixSocket) {
  const RedisUrl url = parsed("unix:///run/redis/redis.sock");
  EXPECT_EQ(url.kind, RedisTopologyKind::kSingle);
  EXPECT_THAT(url.endpoints, ElementsAre(RedisEndpoint{"/run/redis/redis.sock", 0}));
}

TEST(RedisUrl, TlsIsRefusedWithAWayOut) {
  EXPECT_THAT(refusal("rediss://h:1"), HasSubstr("unsupported: redis URL: rediss:// (TLS)"));
}

TEST(RedisUrl, WrongOnesAreRefused) {
  for (const char* text : {"",
                           "h:1",
                           "http://h",
                           "redis://",
                           "redis://:1",
                           "redis://h:",
                           "redis://h:0",
                           "redis://h:65536",
                           "redis://h:6x",
                           "redis://h:-1",
                           "redis://h/x",
                           "redis://h/-1",
                           "redis://h/99999",
                           "redis://a,b",
                           "redis://user@h",
                           "redis://user:@h",
                           "redis://:%4@h",
                           "redis://:%zz@h",
                           "redis://[::1",
                           "redis://[::1]6379",
                           "redis-cluster://a:1,",
                           "redis-cluster://a/1",
                           "redis-sentinel://a",
                           "redis-sentinel://a/",
                           "unix://",
                           "redis://a b:1",
                           "redis://h\n:1"}) {
    EXPECT_THAT(refusal(text), Not(HasSubstr("\n"))) << text;
  }
  EXPECT_THAT(refusal("unix://" + std::string(108, 'x')), HasSubstr("107"));
  std::string many = "redis-cluster://h";
  for (std::size_t i = 0; i < kRedisEndpointsMax; ++i) many += ",h";
  EXPECT_THAT(refusal(many), HasSubstr("more than 64"));
}

TEST(RedisUrl, NobodySeesThePassword) {
  for (const char* text :
       {"redis://:secret@h:x", "redis://:secret@", "redis://u:secret@h:1/x", "rediss://:secret@h:1",
        "nonsense://:secret@h", "redis://:secret%@h", "redis://u:secret", "redis://:pass/secret",
        "redis-cluster://h:secret"}) {
    EXPECT_THAT(refusal(text), Not(HasSubstr("secret"))) << text;
  }
  for (const char* text : {"redis://u:secret@h:1/2", "redis-cluster://:secret@a:1,b:2",
                           "redis-sentinel://:secret@a:1/name"}) {
    EXPECT_THAT(redacted(parsed(text)), Not(HasSubstr("secret"))) << text;
  }
}

TEST(RedisUrl, TheRedactedOneReadsBack) {
  for (const char* text : {"redis://h:1", "redis://h:1/2", "redis-cluster://a:1,[::1]:2",
                           "redis-sentinel://a:1,b:2/name", "unix:///x/y.sock"}) {
    EXPECT_EQ(redacted(parsed(text)), text);
  }
}

TEST(RedisUrl, EndpointsOfRedirects) {
  EXPECT_EQ(*parse_redis_endpoint("10.0.0.1:7001"), (RedisEndpoint{"10.0.0.1", 7001}));
  EXPECT_EQ(*parse_redis_endpoint("::1:7001"), (RedisEndpoint{"::1", 7001}));
  EXPECT_EQ(*parse_redis_endpoint(":7001"), (RedisEndpoint{"", 7001}));
  for (const char* text : {"", "h", "h:", "h:0", "h:99999", "h:1 x"}) {
    EXPECT_FALSE(parse_redis_endpoint(text).ok()) << text;
  }
}

}  // namespace
}  // namespace stemma
