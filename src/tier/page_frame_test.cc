// Page frames: what is written is read; the bytes are frozen; whatever differs is found and named.
#include "tier/page_frame.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <optional>
#include <tuple>
#include <vector>

#include "base/digest.h"
#include "base/long_tests_fixture.h"
#include "tier/page_frame_fixture.h"

namespace stemma {
namespace {

using ::testing::HasSubstr;

std::string hex_of(std::span<const std::byte> bytes) {
  return to_hex({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
}

std::string error_of(const Result<PageFrameView>& result) {
  return result.ok() ? "ok" : to_string(result.error());
}

TEST(PageFrame, ReadsWhatWasWritten) {
  const TestPage page(small_format(), 1, 3);
  const Result<PageFrameView> view = check_frame(page.frame(), page.format(), page.identity());
  ASSERT_TRUE(view.ok()) << error_of(view);
  EXPECT_EQ(view->generation, 7u);
  EXPECT_EQ(view->identity.ordinal, 3);
  EXPECT_EQ(view->format.kind, "mha");
  EXPECT_EQ(view->body.size(), 4096u);
  EXPECT_TRUE(check_body(*view).ok());
}

TEST(PageFrame, SizesAreWholePagesOfTheDisk) {
  PageFormat format = small_format();
  EXPECT_EQ(frame_body_offset(format), 4096u);
  EXPECT_EQ(frame_bytes(format), 8192u);
  format.layer_bytes = 1;
  EXPECT_EQ(frame_bytes(format), 8192u);
  format.page_size = 1024;  // 4096 bytes of tokens leave no room for a header beside them
  EXPECT_EQ(frame_body_offset(format), 8192u);
}

// A stored page outlives the program that wrote it: these bytes may only change with the version.
TEST(PageFrame, BytesAreFrozen) {
  const TestPage page(small_format(), 1, 3);
  std::ifstream golden("tests/golden/page_frame.hex");
  std::string frozen;
  golden >> frozen;
  EXPECT_EQ(hex_of(page.frame().first(512)), frozen);
  EXPECT_EQ(to_hex(sha256(page.frame())),
            "6fbfdf191ecf6b89f10fe5211b5d5eaaf0b3b2ef86a9e257aaff91cd130f7c91");
}

TEST(PageFrame, AnyFlippedBitBeforeTheBodyIsFound) {
  TestPage page(small_format(), 2);
  const std::size_t header_bytes = frame_body_offset(page.format());
  for (std::size_t at = 0; at < header_bytes; ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      page.frame()[at] ^= std::byte{1} << bit;
      ASSERT_FALSE(read_frame(page.frame()).ok()) << "byte " << at << " bit " << bit;
      page.frame()[at] ^= std::byte{1} << bit;
    }
  }
  EXPECT_TRUE(read_frame(page.frame()).ok());
}

TEST(PageFrame, AFlippedBitOfTheBodyIsFoundInItsLayer) {
  TestPage page(small_format(), 3);
  const auto body = page.frame().subspan(frame_body_offset(page.format()));
  for (const std::size_t at : {0u, 2047u, 2048u, 4095u}) {
    body[at] ^= std::byte{0x10};
    const Status status = check_body(*read_frame(page.frame()));
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kCorrupt);
    EXPECT_THAT(status.error().detail, HasSubstr(at < 2048 ? "layer 0" : "layer 1"));
    body[at] ^= std::byte{0x10};
  }
}

TEST(PageFrame, ALaterVersionIsUnsupportedAndNotCorrupt) {
  TestPage page(small_format(), 4);
  page.frame()[8] = std::byte{2};
  EXPECT_EQ(read_frame(page.frame()).error().code, ErrorCode::kUnsupported);
}

TEST(PageFrame, AFrameCutShortOrTooLongIsFound) {
  const TestPage page(small_format(), 5);
  for (const std::size_t size : {0u, 8u, 4095u, 4096u, 8191u}) {
    EXPECT_FALSE(read_frame(page.frame().first(size)).ok()) << size;
  }
  Buffer longer = Buffer::allocate(page.frame().size() + kFrameAlignment).value();
  std::ranges::copy(page.frame(), longer.bytes());
  EXPECT_THAT(error_of(read_frame(longer.as<std::byte>())), HasSubstr("frame_bytes"));
}

// Another's bytes that lay there before are nobody's to store.
TEST(PageFrame, WhatLayInItsPlaceBeforeDoesNotMatter) {
  PageFormat format = small_format();
  format.layer_bytes = 100;
  const TestPage page(format, 9);
  const auto view = read_frame(page.frame());
  ASSERT_TRUE(view.ok()) << error_of(view);
  Buffer dirty = Buffer::allocate(page.frame().size()).value();
  const auto frame = dirty.as<std::byte>();
  std::ranges::fill(frame, std::byte{0xAA});
  std::ranges::copy(view->body, frame.subspan(frame_body_offset(format)).begin());
  encode_frame(format, page.identity(), view->layer_sums, view->generation, frame);
  EXPECT_TRUE(std::ranges::equal(frame, page.frame()));
}

// Where it says so itself, under the right checksum.
TEST(PageFrame, WhatNoPageCouldSayIsNamed) {
  const std::tuple<std::size_t, std::size_t, const char*> lies[] = {
      {8, 1, "version"},     {25, 1, "body_offset"}, {16 + 2, 1, "frame_bytes"},
      {184 + 1, 1, "dtype"}, {192, 16, "kind"},      {208, 16, "codec"}};
  for (const auto& [offset, bytes, name] : lies) {
    TestPage page(small_format(), 6);
    const auto frame = page.frame();
    for (std::size_t at = offset; at < offset + bytes; ++at) {
      frame[at] = frame[at] == std::byte{1} ? std::byte{0} : std::byte{'x'};
    }
    const std::uint32_t sum =
        crc32c(frame.subspan(16, frame_body_offset(small_format()) - 16), crc32c(frame.first(12)));
    std::memcpy(&frame[12], &sum, sizeof(sum));
    const auto read = read_frame(frame);
    ASSERT_FALSE(read.ok()) << name;
    EXPECT_EQ(read.error().code, ErrorCode::kCorrupt);
    EXPECT_THAT(read.error().detail, HasSubstr(std::string(": ") + name + " "));
  }
}

// What a purge asks of a page's first bytes.
TEST(PageFrame, ItsBeginSaysWhoseItIsAndWhatItLiesBehind) {
  TestPage page(small_format(), 1, 3);
  const NamespaceDigest digest = page.identity().namespace_digest;
  NamespaceDigest other = digest;
  for (std::uint8_t& byte : other.bytes) byte ^= 1;
  const std::vector<NamespaceFamily> ours = {family_of(digest)};
  const std::vector<NamespaceFamily> others = {family_of(other)};
  const auto begin = page.frame().first(kNamespacePeekBytes);
  EXPECT_EQ(peek_namespace(begin), digest);
  EXPECT_TRUE(peek_is_behind(begin, ours, 0));
  EXPECT_TRUE(peek_is_behind(begin, ours, 3));
  EXPECT_FALSE(peek_is_behind(begin, ours, 4)) << "three lie before it";
  EXPECT_FALSE(peek_is_behind(begin, others, 0));
  EXPECT_TRUE(peek_is_behind(begin, {}, 3)) << "none is named: everybody's";
  EXPECT_FALSE(peek_is_behind(begin, {}, 4));
  EXPECT_EQ(peek_namespace(begin.first(begin.size() - 1)), std::nullopt);
  for (const std::size_t at : {0u, 8u}) {  // magic, version
    page.frame()[at] ^= std::byte{2};
    EXPECT_EQ(peek_namespace(begin), std::nullopt) << at;
    EXPECT_FALSE(peek_is_behind(begin, ours, 0)) << at;
    page.frame()[at] ^= std::byte{2};
  }
}

TEST(PageFrame, ItsBeginSaysWhereItsBodyLies) {
  TestPage page(small_format(), 1);
  const std::size_t size = page.frame().size();
  const auto begin = page.frame().first(kFrameAlignment);
  EXPECT_EQ(peek_body_offset(begin, size), frame_body_offset(small_format()));
  EXPECT_EQ(peek_body_offset(begin, 100), 0u) << "beyond the frame";
  EXPECT_EQ(peek_body_offset(begin.first(100), size), 0u);
  page.frame()[0] ^= std::byte{1};
  EXPECT_EQ(peek_body_offset(begin, size), 0u);
}

// A header whose checksum is right may still be anything: bounds come before sizes.
TEST(PageFrame, NumbersOutOfBoundsAreNamed) {
  const std::pair<std::size_t, const char*> fields[] = {{32, "layers"},    {40, "layer_bytes"},
                                                        {48, "page_size"}, {56, "heads"},
                                                        {64, "head_dim"},  {72, "ordinal"}};
  for (const auto& [offset, name] : fields) {
    TestPage page(small_format(), 6);
    page.frame()[offset + 7] = std::byte{0x80};
    EXPECT_THAT(error_of(read_frame(page.frame())), HasSubstr(name));
  }
}

TEST(PageFrame, EveryFieldOfTheFormatThatDiffersIsNamed) {
  const TestPage page(small_format(), 7);
  const std::pair<const char*, std::function<void(PageFormat&)>> changes[] = {
      {"layers", [](PageFormat& f) { f.layers = 3; }},
      {"layer_bytes", [](PageFormat& f) { f.layer_bytes = 1024; }},
      {"page_size", [](PageFormat& f) { f.page_size = 32; }},
      {"heads", [](PageFormat& f) { f.heads = 4; }},
      {"head_dim", [](PageFormat& f) { f.head_dim = 32; }},
      {"dtype", [](PageFormat& f) { f.dtype = DType::kBF16; }},
      {"kind", [](PageFormat& f) { f.kind = "mla"; }},
      {"codec", [](PageFormat& f) { f.codec = "packed"; }},
  };
  for (const auto& [name, change] : changes) {
    PageFormat format = page.format();
    change(format);
    const auto result = check_frame(page.frame(), format, page.identity());
    ASSERT_FALSE(result.ok()) << name;
    EXPECT_EQ(result.error().code, ErrorCode::kCorrupt);
    EXPECT_THAT(result.error().detail, HasSubstr(std::string(": ") + name + " "));
  }
}

TEST(PageFrame, EveryPartOfTheIdentityThatDiffersIsNamed) {
  const TestPage page(small_format(), 8);
  std::vector<TokenId> other_tokens(page.identity().tokens.begin(), page.identity().tokens.end());
  other_tokens.back() ^= 1;
  const std::pair<const char*, std::function<void(PageIdentity&)>> changes[] = {
      {"key", [](PageIdentity& i) { i.key.bytes[31] ^= 1; }},
      {"parent", [](PageIdentity& i) { i.parent.bytes[31] ^= 1; }},
      {"namespace", [](PageIdentity& i) { i.namespace_digest.bytes[31] ^= 1; }},
      {"ordinal", [](PageIdentity& i) { i.ordinal += 1; }},
      {"tokens", [&](PageIdentity& i) { i.tokens = other_tokens; }},
  };
  for (const auto& [name, change] : changes) {
    PageIdentity identity = page.identity();
    change(identity);
    EXPECT_THAT(error_of(check_frame(page.frame(), page.format(), identity)),
                HasSubstr(std::string(": ") + name + " "));
  }
}

// Random damage of one to eight bytes anywhere: found, or it hit the zeros behind the body.
TEST(PageFrame, RandomFlipsAreNeverServed) {
  const std::uint64_t seed = 20261122;
  const int rounds = long_tests() ? 1'000'000 : 20'000;
  SCOPED_TRACE(seed);
  Prng prng(seed);
  TestPage page(small_format(), seed);
  const std::vector<std::byte> whole(page.frame().begin(), page.frame().end());
  for (int round = 0; round < rounds; ++round) {
    const std::int64_t flips = 1 + prng.below(8);
    for (std::int64_t flip = 0; flip < flips; ++flip) {
      page.frame()[static_cast<std::size_t>(prng.below(std::ssize(whole)))] ^= std::byte{1}
                                                                               << prng.below(8);
    }
    const bool unchanged = std::ranges::equal(page.frame(), whole);
    const auto view = check_frame(page.frame(), page.format(), page.identity());
    ASSERT_EQ(view.ok() && check_body(*view).ok(), unchanged) << "round " << round;
    std::ranges::copy(whole, page.frame().begin());
  }
}

}  // namespace
}  // namespace stemma
