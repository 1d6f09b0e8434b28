// SendBuffer: what waits is what was appended and has not left, and small parts move little.
#include "http/send_buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>

namespace stemma {
namespace {

TEST(SendBuffer, WhatLeavesIsWhatWasAppendedInOrder) {
  SendBuffer buffer;
  std::string appended;
  std::string left;
  for (std::size_t turn = 0; turn < 300; ++turn) {
    const std::string piece(turn * 7 % 31, static_cast<char>('a' + turn % 26));
    buffer.end() += piece;
    appended += piece;
    EXPECT_EQ(buffer.waiting_bytes(), appended.size() - left.size());
    const std::size_t part = std::min(turn * 5 % 17, buffer.waiting_bytes());
    left += buffer.waiting().substr(0, part);
    buffer.leave(part);
  }
  EXPECT_EQ(left + std::string(buffer.waiting()), appended);
  EXPECT_GT(buffer.waiting_bytes(), 0U);
}

TEST(SendBuffer, AllMayLeaveAndMoreCome) {
  SendBuffer buffer;
  EXPECT_EQ(buffer.waiting(), "");
  buffer.leave(0);
  buffer.end() += "one";
  buffer.leave(3);
  EXPECT_EQ(buffer.waiting_bytes(), 0U);
  buffer.end() += "two";
  EXPECT_EQ(buffer.waiting(), "two");
  buffer.leave(1);
  buffer.release();
  EXPECT_EQ(buffer.waiting(), "");
}

// Moved at every part, 16 MiB in parts of 4 KiB would be 32 GiB.
TEST(SendBuffer, SmallPartsMoveNoMoreThanLeaves) {
  constexpr std::size_t kBytes = std::size_t{16} << 20;
  constexpr std::size_t kPart = std::size_t{4} << 10;
  SendBuffer buffer;
  buffer.end().assign(kBytes, 'x');
  std::size_t moved_bytes = 0;
  while (buffer.waiting_bytes() > 0) {
    const char* const expected = buffer.waiting().data() + kPart;
    buffer.leave(kPart);
    if (buffer.waiting().data() != expected) moved_bytes += buffer.waiting_bytes();
  }
  EXPECT_LE(moved_bytes, kBytes);
  EXPECT_GT(moved_bytes, 0U);
}

// As many bytes come as leave, for as long as an answer lasts.
TEST(SendBuffer, KeepsNoMoreThanTwiceWhatWaits) {
  SendBuffer buffer;
  const std::string piece(1000, 'x');
  for (int turn = 0; turn < 100; ++turn) buffer.end() += piece;
  for (int turn = 0; turn < 10'000; ++turn) {
    buffer.leave(piece.size());
    buffer.end() += piece;
    ASSERT_LE(buffer.end().size(), 2 * buffer.waiting_bytes() + piece.size());
  }
  EXPECT_EQ(buffer.waiting_bytes(), 100 * piece.size());
}

}  // namespace
}  // namespace stemma
