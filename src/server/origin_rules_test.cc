// Covers pages of which sites may ask, and read the answers.
#include "server/origin_rules.h"

#include <gtest/gtest.h>

namespace stemma {
namespace {

HttpRequest asked(std::string host, std::string origin) {
  HttpRequest request;
  if (!host.empty()) request.headers.emplace_back("host", std::move(host));
  if (!origin.empty()) request.headers.emplace_back("origin", std::move(origin));
  return request;
}

OriginRules rules(std::vector<std::string> allowed, bool listens_locally = false) {
  return std::move(OriginRules::of(std::move(allowed), listens_locally)).value();
}

bool may_ask(const OriginRules& rules, std::string host, std::string origin = "") {
  return !rules.fault(asked(std::move(host), std::move(origin))).has_value();
}

bool is_granted(const OriginRules& rules, std::string origin) {
  return rules.granted_or_null(asked("here", std::move(origin))) != nullptr;
}

TEST(OriginRules, ProgramsAndPagesOfItsOwnMayAsk) {
  const OriginRules own;
  EXPECT_TRUE(may_ask(own, "here:8080")) << "no page asks";
  EXPECT_TRUE(may_ask(own, "here:8080", "http://here:8080"));
  EXPECT_TRUE(may_ask(own, "Here.example", "https://here.EXAMPLE")) << "behind a proxy with TLS";
  EXPECT_TRUE(may_ask(own, "[::1]:8080", "http://[::1]:8080"));
}

TEST(OriginRules, PagesOfOthersMayNot) {
  for (const char* const other : {"http://evil.example", "http://here:3000", "http://here", "null",
                                  "here:8080", "http://here:8080.evil.example"}) {
    EXPECT_FALSE(may_ask(OriginRules(), "here:8080", other)) << other;
    EXPECT_FALSE(is_granted(OriginRules(), other)) << other;
  }
  EXPECT_FALSE(may_ask(OriginRules(), "", "http://")) << "no Host to be of";
}

TEST(OriginRules, AllowedOriginsMayAskAndRead) {
  const OriginRules some = rules({"https://chat.example", "http://localhost:3000", "null"});
  for (const char* const one :
       {"https://chat.example", "https://Chat.example", "http://localhost:3000", "null"}) {
    EXPECT_TRUE(may_ask(some, "here:8080", one)) << one;
    EXPECT_TRUE(is_granted(some, one)) << one;
  }
  for (const char* const other :
       {"http://chat.example", "https://chat.example:444", "https://a.chat.example"}) {
    EXPECT_FALSE(may_ask(some, "here:8080", other)) << other;
    EXPECT_FALSE(is_granted(some, other)) << other;
  }
  EXPECT_FALSE(is_granted(some, "")) << "no page asks";
  EXPECT_TRUE(is_granted(rules({"*"}), "http://any.example"));
}

TEST(OriginRules, ThisMachineIsReachedUnderNamesThatNobodyOwns) {
  const OriginRules local = rules({"https://chat.example"}, true);
  for (const char* const name :
       {"localhost:8080", "127.0.0.1:8080", "127.0.0.1", "[::1]:8080", "model.localhost",
        "MODEL.LOCALHOST:1", "desk", "chat.example:80"}) {
    EXPECT_TRUE(may_ask(local, name)) << name;
  }
  for (const char* const name : {"evil.example:8080", "evil.example", "127.0.0.1.evil.example",
                                 "localhost.evil.example:8080", ".localhost"}) {
    EXPECT_FALSE(may_ask(local, name)) << name;
    EXPECT_FALSE(may_ask(local, name, std::string("http://") + name)) << "to a browser its own";
    EXPECT_TRUE(may_ask(OriginRules(), name)) << "a name of a server that others reach";
    EXPECT_TRUE(may_ask(rules({"*"}, true), name));
  }
}

TEST(OriginRules, TheNameOfAnAllowedOriginIsTheOperatorsAtAnyPort) {
  const OriginRules local = rules({"https://chat.example:3000"}, true);
  EXPECT_TRUE(may_ask(local, "chat.example:8080"));
  EXPECT_FALSE(may_ask(local, "other.example:3000"));
}

TEST(OriginRules, WhatIsNoOriginIsRefused) {
  for (const char* const wrong : {"", "chat.example", "https://", "://chat.example",
                                  "https://chat.example/", "https://a@b", "https://a b"}) {
    EXPECT_FALSE(OriginRules::of({wrong}, false).ok()) << wrong;
  }
}

TEST(OriginRules, APreflightIsAnsweredWithTheHeadersThatItAsksFor) {
  HttpRequest request = asked("here", "https://chat.example");
  request.method = "OPTIONS";
  EXPECT_FALSE(is_preflight(request));
  request.headers.emplace_back("access-control-request-method", "POST");
  ASSERT_TRUE(is_preflight(request));
  request.headers.emplace_back("access-control-request-headers", "authorization,x-stainless-os");
  const HttpResponse response = preflight_answer(request);
  EXPECT_EQ(response.status, 204);
  const std::pair<std::string, std::string> wanted = {"Access-Control-Allow-Headers",
                                                      "authorization,x-stainless-os"};
  EXPECT_NE(std::find(response.headers.begin(), response.headers.end(), wanted),
            response.headers.end());
}

}  // namespace
}  // namespace stemma
