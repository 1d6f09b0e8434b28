// Url: percent-decoding and query parameters, by table.
#include "http/url.h"

#include <gtest/gtest.h>

#include <string>

namespace stemma {
namespace {

TEST(Url, DecodesPercentEncodedBytes) {
  EXPECT_EQ(try_percent_decode(""), "");
  EXPECT_EQ(try_percent_decode("/a-b_c.d~"), "/a-b_c.d~");
  EXPECT_EQ(try_percent_decode("/a%20b%2fc%2Fd"), "/a b/c/d");
  EXPECT_EQ(try_percent_decode("%e2%82%AC"), "€");
  EXPECT_EQ(try_percent_decode("a+b"), "a+b");
  EXPECT_EQ(try_percent_decode("%2525"), "%25");
  EXPECT_EQ(try_percent_decode("%00"), std::string(1, '\0'));
}

TEST(Url, RefusesBadEncodings) {
  for (const char* text : {"%", "a%", "%2", "%2x", "%x2", "% 2", "%%20", "%-1"}) {
    EXPECT_EQ(try_percent_decode(text), std::nullopt) << text;
  }
}

TEST(Url, FindsAParameter) {
  const std::string query = "limit=10&after=a%20b+c&empty=&flag&limit=20&k%65y=v=w";
  EXPECT_EQ(*query_value_or_null(query, "limit"), "10");  // the first
  EXPECT_EQ(*query_value_or_null(query, "after"), "a b c");
  EXPECT_EQ(*query_value_or_null(query, "empty"), "");
  EXPECT_EQ(*query_value_or_null(query, "flag"), "");
  EXPECT_EQ(*query_value_or_null(query, "key"), "v=w");
  EXPECT_EQ(*query_value_or_null(query, "lim"), std::nullopt);
  EXPECT_EQ(*query_value_or_null("", "limit"), std::nullopt);
  EXPECT_EQ(*query_value_or_null("&&", "limit"), std::nullopt);
}

TEST(Url, AParameterThatCannotBeReadIsNotTakenForNone) {
  for (const char* const query : {"limit=%zz", "limit=50%", "a=1&limit=%2"}) {
    const auto value = query_value_or_null(query, "limit");
    ASSERT_FALSE(value.ok()) << query;
    EXPECT_EQ(value.error().code, ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(*query_value_or_null("%zz=1&limit=2", "limit"), "2");
}

TEST(Url, AQueryThatSaysMoreThanIsReadIsKnown) {
  for (const char* query : {"", "tenant=a", "tenant=", "tenant", "t%65nant=a&"}) {
    EXPECT_TRUE(says_only(query, "tenant")) << query;
  }
  for (const char* query :
       {"tenent=a", "tenant=a&pages=1", "tenant=a&tenant=b", "Tenant=a", "%zz"}) {
    EXPECT_FALSE(says_only(query, "tenant")) << query;
  }
}

}  // namespace
}  // namespace stemma
