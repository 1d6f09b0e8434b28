// What a server says of itself and of its replicas.
#include "store/redis_server_state.h"

#include <gtest/gtest.h>

#include <string>

namespace stemma {
namespace {

RedisServerState state_of(const std::string& info) {
  RedisCommand question = server_state_question();
  question.answered = true;
  question.reply.kind = RespKind::kBulk;
  question.reply.text = info;
  const auto state = server_state(question);
  EXPECT_TRUE(state.has_value());
  return state.value_or(RedisServerState());
}

std::string replication(const std::string& replicas) {
  return "# Replication\r\nrole:master\r\n" + replicas +
         "master_replid:ab\r\nmaster_replid2:00\r\nmaster_repl_offset:70\r\n";
}

TEST(RedisServerState, OneWithoutReplicasWaitsForNobody) {
  const RedisServerState state = state_of(replication("connected_slaves:0\r\n"));
  EXPECT_EQ(state.written, 70);
  EXPECT_TRUE(state.replicas_follow(70));
}

TEST(RedisServerState, TheReplicaThatHasLeastCounts) {
  const RedisServerState state =
      state_of(replication("connected_slaves:2\r\n"
                           "slave0:ip=10.0.0.7,port=6379,state=online,offset=70,lag=0\r\n"
                           "slave1:ip=10.0.0.8,port=6379,state=online,offset=56,lag=1\r\n"));
  EXPECT_TRUE(state.replicas_follow(56));
  EXPECT_FALSE(state.replicas_follow(57));
}

TEST(RedisServerState, AReplicaThatIsGivenItsFirstCopyHasNothing) {
  const RedisServerState state =
      state_of(replication("connected_slaves:1\r\n"
                           "slave0:ip=10.0.0.7,port=6379,state=send_bulk,offset=70,lag=0\r\n"));
  EXPECT_FALSE(state.replicas_follow(0));
}

TEST(RedisServerState, SoHasOneThatIsCountedAndNotToldOf) {
  EXPECT_FALSE(state_of(replication("connected_slaves:1\r\n")).replicas_follow(0));
}

TEST(RedisServerState, ALifeIsAProcessAndTheReplicationThatFedIt) {
  const std::string server = "# Server\r\nrun_id:12\r\n";
  EXPECT_EQ(state_of(server + replication("")).life, "12ab");
  EXPECT_EQ(state_of(server).life, "12");
  EXPECT_EQ(state_of("").life, "");
}

TEST(RedisServerState, WhatItMayHoldAndGivesUpIsInItsOwnWords) {
  const RedisServerState state =
      state_of("# Memory\r\nmaxmemory:1000\r\nmaxmemory_policy:allkeys-lru\r\n");
  EXPECT_EQ(state.room_bytes, 1000);
  EXPECT_EQ(state.eviction, "allkeys-lru");
  EXPECT_FALSE(state_of("# Server\r\n").room_bytes.has_value());
}

TEST(RedisServerState, AnErrorSaysNothing) {
  RedisCommand question = server_state_question();
  EXPECT_FALSE(server_state(question).has_value()) << "nor does silence";
  question.answered = true;
  question.reply.kind = RespKind::kError;
  EXPECT_FALSE(server_state(question).has_value());
}

}  // namespace
}  // namespace stemma
