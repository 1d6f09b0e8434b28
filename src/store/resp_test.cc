// RESP: every reply cut at every byte, every length that is not one, and what commands look like.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/prng.h"
#include "store/resp_reader.h"
#include "store/resp_writer.h"

namespace stemma {
namespace {

// A stream of `text` in pieces of at most `piece_bytes`, then its end.
class TextSource final : public ByteSource {
 public:
  explicit TextSource(std::string text, std::size_t piece_bytes = SIZE_MAX)
      : text_(std::move(text)), piece_bytes_(piece_bytes) {}
  Result<std::size_t> read_some(std::span<std::byte> target) override {
    const std::size_t bytes = std::min({target.size(), piece_bytes_, text_.size() - at_});
    if (bytes == 0) return Error{ErrorCode::kIo, "the end"};
    std::memcpy(target.data(), text_.data() + at_, bytes);
    at_ += bytes;
    return bytes;
  }

 private:
  std::string text_;
  std::size_t piece_bytes_;
  std::size_t at_ = 0;
};

ErrorCode refusal(const std::string& text, std::size_t target_bytes = 0) {
  TextSource source(text);
  RespReader reader(source);
  std::vector<std::byte> frame(target_bytes);
  RespReply reply;
  const Status status = reader.read({frame, {}}, reply);
  EXPECT_FALSE(status.ok()) << text.substr(0, 100);
  return status.ok() ? ErrorCode::kInternal : status.error().code;
}

TEST(RespReader, ReadsEachKind) {
  TextSource source("+OK\r\n-ERR no\r\n:-7\r\n$-1\r\n*-1\r\n$3\r\na\r\n\r\n$0\r\n\r\n*0\r\n");
  RespReader reader(source);
  std::vector<RespReply> replies(8);
  for (RespReply& reply : replies) ASSERT_TRUE(reader.read({}, reply).ok());
  EXPECT_FALSE(reader.has_unread());
  EXPECT_EQ(replies[0].kind, RespKind::kStatus);
  EXPECT_EQ(replies[0].text, "OK");
  EXPECT_EQ(replies[1].kind, RespKind::kError);
  EXPECT_EQ(replies[1].text, "ERR no");
  EXPECT_EQ(replies[2].kind, RespKind::kInteger);
  EXPECT_EQ(replies[2].number, -7);
  EXPECT_EQ(replies[3].kind, RespKind::kNil);
  EXPECT_EQ(replies[4].kind, RespKind::kNil);
  EXPECT_EQ(replies[5].text, "a\r\n") << "a value may hold what ends lines";
  EXPECT_EQ(replies[6].kind, RespKind::kBulk);
  EXPECT_EQ(replies[6].text, "");
  EXPECT_EQ(replies[7].kind, RespKind::kArray);
}

TEST(RespReader, ReadsArraysInArrays) {
  TextSource source("*2\r\n:1\r\n*3\r\n$1\r\nx\r\n+y\r\n*0\r\n");
  RespReader reader(source);
  RespReply reply;
  ASSERT_TRUE(reader.read({}, reply).ok());
  ASSERT_EQ(reply.items.size(), 2u);
  ASSERT_EQ(reply.items[1].items.size(), 3u);
  EXPECT_EQ(reply.items[1].items[0].text, "x");
}

// Values of every size about the buffer's, in one stream, in pieces of any size: never shifted.
TEST(RespReader, ValuesLandInTheirTargetsHoweverTheyCome) {
  constexpr std::uint64_t kSeed = 20240607;
  SCOPED_TRACE(kSeed);
  Prng prng(kSeed);
  for (const std::size_t piece_bytes : {1u, 2u, 3u, 7u, 100u, 4096u, 16384u, 100000u}) {
    std::string text;
    std::vector<std::string> values;
    for (const std::size_t size :
         {1u, 31u, 4095u, 4096u, 4097u, 16383u, 16384u, 16385u, 40000u, 2u}) {
      std::string value(size, '\0');
      for (char& c : value) c = static_cast<char>(prng());
      text += "$" + std::to_string(size) + "\r\n" + value + "\r\n-ERR between\r\n";
      values.push_back(value);
    }
    TextSource source(text, piece_bytes);
    RespReader reader(source);
    for (const std::string& value : values) {
      std::string first(value.size() / 2, '\0');
      std::string second(value.size() - first.size(), '\0');
      RespReply reply;
      ASSERT_TRUE(reader
                      .read({std::as_writable_bytes(std::span(first)),
                             std::as_writable_bytes(std::span(second))},
                            reply)
                      .ok());
      EXPECT_EQ(reply.number, static_cast<std::int64_t>(value.size()));
      EXPECT_EQ(first + second, value);
      ASSERT_TRUE(reader.read({}, reply).ok());
      EXPECT_EQ(reply.text, "ERR between");
    }
    EXPECT_FALSE(reader.has_unread());
  }
}

TEST(RespReader, AShorterValueFillsTheFront) {
  TextSource source("$2\r\nab\r\n:5\r\n");
  RespReader reader(source);
  std::string frame = "....";
  RespReply reply;
  ASSERT_TRUE(reader.read({std::as_writable_bytes(std::span(frame)), {}}, reply).ok());
  EXPECT_EQ(reply.number, 2);
  EXPECT_EQ(frame, "ab..");
  ASSERT_TRUE(reader.read({}, reply).ok());
  EXPECT_EQ(reply.number, 5);
}

TEST(RespReader, CutAtEveryByteItIsTheSourcesError) {
  for (const std::string whole : {"+OK\r\n", "-ERR x\r\n", ":12\r\n", "$-1\r\n", "$4\r\nabcd\r\n",
                                  "*2\r\n$1\r\na\r\n:1\r\n"}) {
    for (std::size_t cut = 0; cut < whole.size(); ++cut) {
      EXPECT_EQ(refusal(whole.substr(0, cut)), ErrorCode::kIo) << whole << cut;
      EXPECT_EQ(refusal(whole.substr(0, cut), 4), ErrorCode::kIo) << whole << cut;
    }
  }
}

TEST(RespReader, WhatIsNotResp2IsCorrupt) {
  for (const char* text : {"\r\n",
                           "OK\r\n",
                           "+OK\n",
                           "$\r\n",
                           "$x\r\n",
                           "$+1\r\na\r\n",
                           "$ 1\r\na\r\n",
                           "$1 \r\na\r\n",
                           "$-2\r\n",
                           "$-9223372036854775808\r\n",
                           "$9223372036854775808\r\n",
                           "$99999999999999999999\r\n",
                           "*-2\r\n",
                           ":\r\n",
                           ":1.5\r\n",
                           "$1\r\nab\r\n",
                           "$1\r\na\n\r",
                           "%1\r\n",
                           "_\r\n",
                           "HTTP/1.1 400 Bad Request\r\n"}) {
    EXPECT_EQ(refusal(text), ErrorCode::kCorrupt) << text;
  }
  EXPECT_EQ(refusal("+" + std::string(20000, 'x')), ErrorCode::kCorrupt);
  EXPECT_EQ(refusal("+" + std::string(kRespLineBytesMax, 'x') + "\r\n"), ErrorCode::kCorrupt);
}

TEST(RespReader, WhatIsTooLongIsRefusedBeforeItComes) {
  EXPECT_EQ(refusal("$5\r\n", 4), ErrorCode::kTooLarge);
  EXPECT_EQ(refusal("$9223372036854775807\r\n", 4), ErrorCode::kTooLarge);
  EXPECT_EQ(refusal("$9223372036854775807\r\n"), ErrorCode::kTooLarge);
  EXPECT_EQ(refusal("$5000000\r\n"), ErrorCode::kTooLarge);
  std::string deep;
  for (int i = 0; i <= kRespDepthMax; ++i) deep += "*1\r\n";
  EXPECT_EQ(refusal(deep), ErrorCode::kTooLarge);
  // An array as long as it says costs only what has come of it.
  EXPECT_EQ(refusal("*9223372036854775807\r\n:1\r\n"), ErrorCode::kIo);
  std::string wide = "*1000000\r\n";
  for (int i = 0; i < 100000; ++i) wide += ":1\r\n";
  EXPECT_EQ(refusal(wide), ErrorCode::kTooLarge);
  std::string long_lines = "*10000\r\n";
  for (int i = 0; i < 1100; ++i) long_lines += "+" + std::string(4000, 'x') + "\r\n";
  EXPECT_EQ(refusal(long_lines), ErrorCode::kTooLarge);
}

std::string sent_in_pieces(RespWriter& writer, std::size_t piece_bytes) {
  std::string text;
  while (writer.pending()) {
    iovec pieces[2];
    const std::size_t filled = writer.gather(pieces);
    std::string gathered;
    for (std::size_t i = 0; i < filled; ++i) {
      gathered.append(static_cast<const char*>(pieces[i].iov_base), pieces[i].iov_len);
    }
    gathered.resize(std::min(gathered.size(), piece_bytes));
    writer.sent(gathered.size());
    text += gathered;
  }
  return text;
}

TEST(RespWriter, WordsAndValuesInOrderHoweverTheyGo) {
  const std::string value = "frame";
  const std::string tag = "tag";
  for (std::size_t piece_bytes = 1; piece_bytes < 40; ++piece_bytes) {
    RespWriter writer;
    for (int round = 0; round < 2; ++round) {
      writer.begin(3);
      writer.add("SET");
      writer.add("k");
      writer.add_pointed(std::as_bytes(std::span(value)), std::as_bytes(std::span(tag)));
      writer.begin(1);
      writer.add("PING");
      EXPECT_EQ(sent_in_pieces(writer, piece_bytes),
                "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$8\r\nframetag\r\n*1\r\n$4\r\nPING\r\n");
    }
  }
}

}  // namespace
}  // namespace stemma
