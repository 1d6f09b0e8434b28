// Host memory over a restart: what one life saved the next one has, page by page the same bytes
// under the same texts; a page that is wrong in the file stays out, with all that continues it and
// nothing else; where there is less memory the warmest pages are there. Never a wrong byte.
// Faults: rows 2, 3 and 4 (docs/FAULTS.md).
#include "cache/host_image_pages.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "base/clock.h"
#include "base/flip_bit.h"
#include "base/temp_directory.h"
#include "cache/keyed_pages_fixture.h"
#include "prefix/page_key.h"
#include "stemma/log.h"
#include "tier/lying_frames.h"

namespace stemma {
namespace {

using Text = std::vector<TokenId>;

constexpr std::uint64_t kSeed = 20261126;
constexpr std::int64_t kPageSize = KeyedPages::kPageSize;
constexpr std::size_t kFileHeaderBytes = 4096;

// One life of host memory: its tree, its bytes, and the file.
class Life {
 public:
  Life(const std::string& path, std::int64_t host_pages)
      : keyed(host_pages, 0), image(keyed.image(path, digest_of(200))) {
    KvCacheOptions options;
    options.page_size = kPageSize;
    tier = HostTier::open(options, {.pages = host_pages}, clock_).value();
  }

  // Publishes a text of whole pages.
  void publish(const NamespaceDigest& digest, const Text& text) {
    RadixPrefixCache& tree = tier->tree();
    const NamespaceId name = tree.try_open_namespace(digest).value();
    PrefixLock held = tree.match(name, text);
    const std::int64_t first = held.tokens() / kPageSize;
    const std::int64_t pages = std::ssize(text) / kPageSize - first;
    OwnedPages target = std::move(*tier->space().try_take(pages));
    std::vector<PageId> ids(static_cast<std::size_t>(pages));
    target.copy_to(ids);
    held = tree.insert(text, std::move(held), std::move(target), {});
    std::vector<PageKey> keys(ids.size());
    held.copy_page_keys(first, keys);
    for (std::size_t i = 0; i < ids.size(); ++i) keyed.put(ids[i], keys[i]);
    held.reset();
    tree.close_namespace(name);
  }

  // Tokens of a text that are there, each page of them with the right bytes.
  std::int64_t right_tokens(const NamespaceDigest& digest, const Text& text) {
    RadixPrefixCache& tree = tier->tree();
    const NamespaceId name = tree.try_open_namespace(digest).value();
    const PrefixLock held = tree.match(name, text);
    std::vector<PageId> ids(static_cast<std::size_t>(held.tokens() / kPageSize));
    std::vector<PageKey> keys(ids.size());
    held.copy_pages(0, ids);
    held.copy_page_keys(0, keys);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      EXPECT_TRUE(keyed.has(ids[i], keys[i])) << "a wrong byte";
    }
    tree.close_namespace(name);
    return held.tokens();
  }

  std::int64_t save() {
    const auto saved = save_host_image(*tier, {&image});
    EXPECT_TRUE(saved.ok()) << to_string(saved.error());
    return saved.ok() ? *saved : -1;
  }
  HostImageCounts load() {
    const HostImageCounts counts = load_host_image(*tier, {&image});
    EXPECT_EQ(tier->tree().audit(), std::nullopt);
    EXPECT_EQ(tier->allocator().audit(), std::nullopt);
    EXPECT_EQ(tier->allocator().owned_pages(), 0);
    EXPECT_EQ(tier->tree().locks(), 0);
    return counts;
  }
  std::int64_t pages() const { return tier->allocator().released_pages(); }

  KeyedPages keyed;
  HostImage image;
  std::unique_ptr<HostTier> tier;

 private:
  FakeClock clock_;
};

class HostImagePagesTest : public ::testing::Test {
 protected:
  void SetUp() override { set_log_level(LogLevel::kError); }
  void TearDown() override { set_log_level(LogLevel::kInfo); }

  std::size_t frame_bytes_of(const Life& life) { return frame_bytes(life.image.label.format); }

  TempDirectory directory;
  std::string path = directory.file("host");
};

//        shared(3) ─┬─ left(2)
//   1:              └─ right(4) ─── deep(1)
//   2:   shared(3)                                    the same tokens, another namespace
TEST_F(HostImagePagesTest, TheNextLifeHasWhatTheLastOneHad) {
  const Text shared = text_of(1, 3);
  const Text left = joined(shared, text_of(2, 2));
  const Text right = joined(shared, text_of(3, 4));
  const Text deep = joined(right, text_of(4, 1));
  {
    Life life(path, 32);
    for (const Text& text : {shared, left, right, deep}) life.publish(digest_of(1), text);
    life.publish(digest_of(2), shared);
    EXPECT_EQ(life.save(), 3 + 2 + 4 + 1 + 3);
    EXPECT_EQ(life.pages(), 13) << "all is still there";
    EXPECT_EQ(life.tier->tree().locks(), 0);
  }
  Life life(path, 32);
  const HostImageCounts counts = life.load();
  EXPECT_EQ(counts.loaded, 13);
  EXPECT_EQ(counts.left_out, 0);
  EXPECT_EQ(life.right_tokens(digest_of(1), left), std::ssize(left));
  EXPECT_EQ(life.right_tokens(digest_of(1), deep), std::ssize(deep));
  EXPECT_EQ(life.right_tokens(digest_of(2), left), std::ssize(shared));
  EXPECT_EQ(life.right_tokens(digest_of(3), shared), 0);
  EXPECT_EQ(life.save(), 13) << "and so on";
}

// The device opens the namespace later: it is told the name that has the pages.
TEST_F(HostImagePagesTest, ANamespaceThatNobodyHasNamedYetKeepsItsPages) {
  const Text text = text_of(1, 3);
  {
    Life life(path, 8);
    life.publish(digest_of(1), text);
    life.save();
  }
  Life life(path, 8);
  life.load();
  life.tier->open_namespace(NamespaceId(4), digest_of(1));
  const NamespaceId name = life.tier->namespace_of(NamespaceId(4));
  ASSERT_TRUE(name.valid());
  EXPECT_EQ(life.tier->tree().probe(name, text).matched_tokens, std::ssize(text));
}

TEST_F(HostImagePagesTest, WhereThereIsLessMemoryTheWarmestPagesAreThere) {
  std::vector<Text> texts;
  {
    Life life(path, 20);
    for (TokenId first = 1; first <= 10; ++first) {
      texts.push_back(text_of(first, 2));
      life.publish(digest_of(1), texts.back());
    }
    life.right_tokens(digest_of(1), texts[0]);  // a use
    life.save();
  }
  Life life(path, 6);
  life.load();
  EXPECT_EQ(life.pages(), 6);
  for (const std::size_t warm : {std::size_t{0}, std::size_t{8}, std::size_t{9}}) {
    EXPECT_EQ(life.right_tokens(digest_of(1), texts[warm]), 2 * kPageSize) << warm;
  }
}

TEST_F(HostImagePagesTest, AMemoryThatIsJustLargeEnoughLosesNothing) {
  const Text shared = text_of(1, 3);
  std::int64_t pages = 3;
  const auto publish_all = [&](Life& life) {
    life.publish(digest_of(1), shared);
    for (TokenId first = 2; first <= 9; ++first) {
      life.publish(digest_of(1), joined(shared, text_of(first, first % 3 + 1)));
      pages += first % 3 + 1;
    }
  };
  {
    Life life(path, 64);
    publish_all(life);
    ASSERT_EQ(life.save(), pages);
  }
  Life life(path, pages);
  EXPECT_EQ(life.load().loaded, pages);
  EXPECT_EQ(life.pages(), pages);
}

// A page's frame is hit: it and what continues it are not there, everything else is.
TEST_F(HostImagePagesTest, AWrongPageStaysOutWithWhatContinuesIt) {
  const Text trunk = text_of(1, 4);
  const Text branch = joined(Text(trunk.begin(), trunk.begin() + 2 * kPageSize), text_of(2, 2));
  const Text other = text_of(3, 2);
  std::size_t frame = 0;
  {
    Life life(path, 16);
    life.publish(digest_of(1), trunk);
    life.publish(digest_of(1), branch);
    life.publish(digest_of(1), other);
    life.save();  // trunk's four frames come first
    frame = frame_bytes_of(life);
  }
  for (const std::size_t at : {std::size_t{90}, kFrameAlignment + 5}) {
    SCOPED_TRACE(at);
    flip_bit(path, kFileHeaderBytes + 2 * frame + at);
    Life life(path, 16);
    const HostImageCounts counts = life.load();
    EXPECT_EQ(counts.loaded, 6);
    EXPECT_EQ(counts.left_out, 2);
    EXPECT_EQ(life.right_tokens(digest_of(1), trunk), 2 * kPageSize);
    EXPECT_EQ(life.right_tokens(digest_of(1), branch), std::ssize(branch));
    EXPECT_EQ(life.right_tokens(digest_of(1), other), std::ssize(other));
    flip_bit(path, kFileHeaderBytes + 2 * frame + at);
  }
  flip_bit(path, kFileHeaderBytes + frame + kFrameAlignment);
  Life life(path, 16);
  EXPECT_EQ(life.load().left_out, 5) << "all that share it";
  EXPECT_EQ(life.right_tokens(digest_of(1), branch), kPageSize);
}

TEST_F(HostImagePagesTest, AFrameBeforeItsParentOrTwiceStaysOut) {
  const Text text = text_of(1, 3);
  std::size_t frame = 0;
  {
    Life life(path, 8);
    life.publish(digest_of(1), text);
    life.save();
    frame = frame_bytes_of(life);
  }
  std::ifstream in(path, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  const auto frame_at = [&](std::size_t i) {
    return whole.substr(kFileHeaderBytes + i * frame, frame);
  };
  std::ofstream(path, std::ios::binary) << whole.substr(0, kFileHeaderBytes) << frame_at(1)
                                        << frame_at(0) << frame_at(0) << frame_at(1) << frame_at(2);
  Life life(path, 8);
  const HostImageCounts counts = life.load();
  EXPECT_EQ(counts.loaded, 3);
  EXPECT_EQ(counts.left_out, 2);
  EXPECT_EQ(life.right_tokens(digest_of(1), text), std::ssize(text));
}

// Frames whose checksums are right, of which each says one thing that is not so.
TEST_F(HostImagePagesTest, AFrameThatLiesStaysOut) {
  const Text text = text_of(1, 3);
  const auto tokens = [&](std::int64_t page) {
    return std::span(text).subspan(static_cast<std::size_t>(page * kPageSize), kPageSize);
  };
  const NamespaceDigest digest = digest_of(1);
  const PageKey root = PageKeyHasher::root(digest);
  PageKeyHasher hasher;
  const PageKey first = hasher.next(root, tokens(0));
  const PageKey second = hasher.next(first, tokens(1));
  const PageIdentity right = {second, first, digest, 1, tokens(1)};
  std::vector<PageIdentity> lies(5, right);
  lies[0].tokens = tokens(2);
  lies[1].parent = root;
  lies[2].ordinal = 2;
  lies[3].namespace_digest = digest_of(2);
  lies[4].ordinal = 0;
  for (std::size_t lie = 0; lie <= lies.size(); ++lie) {
    SCOPED_TRACE(lie);
    const bool lies_here = lie < lies.size();
    Life life(path, 8);
    const HostImageLabel& label = life.image.label;
    auto writer = HostImageWriter::open(path, label).value();
    for (const PageIdentity& page :
         {PageIdentity{first, root, digest, 0, tokens(0)}, lies_here ? lies[lie] : right}) {
      const std::span<std::byte> frame = writer->next_frame();
      const std::vector<std::byte> bytes = life.keyed.bytes_of(page.key);
      std::ranges::copy(bytes, frame.subspan(frame_body_offset(label.format)).begin());
      encode_frame(label.format, page, KeyedPages::sums_of(bytes), 0, frame);
      ASSERT_TRUE(writer->keep().ok());
    }
    ASSERT_TRUE(writer->finish().ok());
    EXPECT_EQ(life.load().loaded, lies_here ? 1 : 2);
    EXPECT_EQ(life.right_tokens(digest, text), lies_here ? kPageSize : 2 * kPageSize);
  }
}

// A store that hangs may hold a text until the end.
TEST_F(HostImagePagesTest, WhatIsHeldIsSavedWhereItIsNamed) {
  const Text text = text_of(1, 3);
  {
    Life life(path, 3);
    life.publish(digest_of(1), text);
    RadixPrefixCache& tree = life.tier->tree();
    const NamespaceId name = tree.try_open_namespace(digest_of(1)).value();
    const PrefixLock held = tree.match(name, text);
    EXPECT_EQ(life.save(), 0);
    EXPECT_EQ(*save_host_image(*life.tier, {&life.image}, nullptr, {&held, 1}), 3);
    tree.close_namespace(name);
  }
  Life life(path, 3);
  EXPECT_EQ(life.load().loaded, 3);
  EXPECT_EQ(life.right_tokens(digest_of(1), text), std::ssize(text));
}

TEST_F(HostImagePagesTest, APageThatIsWrongInHostMemoryIsNotSaved) {
  const Text text = text_of(1, 3);
  {
    Life life(path, 3);
    life.publish(digest_of(1), text);
    life.keyed.damage(PageId(1));
    EXPECT_EQ(life.save(), 1);
  }
  Life life(path, 3);
  EXPECT_EQ(life.load().loaded, 1);
  EXPECT_EQ(life.right_tokens(digest_of(1), text), kPageSize);
}

TEST_F(HostImagePagesTest, NoFileOrAnotherModelsGivesNothing) {
  Life life(path, 8);
  EXPECT_EQ(life.load().loaded, 0);
  life.publish(digest_of(1), text_of(1, 2));
  life.save();
  Life other(path, 8);
  other.image.label.model = digest_of(201);
  EXPECT_EQ(other.load().loaded, 0);
  EXPECT_EQ(other.pages(), 0);
}

// Random trees, random damage: bytes flipped, frames changed for others, the file cut off. What is
// there afterwards is right, and nothing is lost that was not hit or hung on what was.
TEST_F(HostImagePagesTest, NoDamageIsEverServed) {
  for (std::uint64_t seed = kSeed; seed < kSeed + 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Prng prng(seed);
    std::vector<std::pair<NamespaceDigest, Text>> texts;
    std::int64_t saved = 0;
    std::size_t frame = 0;
    {
      Life life(path, 64);
      for (int i = 0; i < 12; ++i) {
        Text text;
        for (std::int64_t more = prng.below(5); more >= 0; --more) {
          text = joined(text, text_of(static_cast<TokenId>(prng.below(3)), 1));
        }
        texts.emplace_back(digest_of(static_cast<int>(prng.below(2))), text);
        life.publish(texts.back().first, text);
      }
      saved = life.save();
      frame = frame_bytes_of(life);
    }
    const auto damage = prng.below(4);
    for (std::int64_t i = 0; i < damage; ++i) {
      flip_bit(path, kFileHeaderBytes + static_cast<std::size_t>(
                                            prng.below(saved * static_cast<std::int64_t>(frame))));
    }
    if (prng.below(3) == 0) {
      const auto bytes = kFileHeaderBytes + static_cast<std::size_t>(prng.below(saved)) * frame;
      std::filesystem::resize_file(path, bytes + static_cast<std::size_t>(prng.below(2)) * 17);
    }
    const bool whole =
        damage == 0 && std::filesystem::file_size(path) ==
                           kFileHeaderBytes + static_cast<std::size_t>(saved) * frame;
    Life life(path, 64);
    const HostImageCounts counts = life.load();
    EXPECT_LE(counts.loaded, saved);
    EXPECT_TRUE(!whole || (counts.loaded == saved && counts.left_out == 0));
    EXPECT_EQ(life.pages(), counts.loaded);
    for (const auto& [digest, text] : texts) life.right_tokens(digest, text);
  }
}

// Frames whose checksums are right and which say what is not so: of their tokens, what they
// continue, where they lie, how long they are.
TEST_F(HostImagePagesTest, NoLieIsEverServed) {
  const std::vector<std::pair<NamespaceDigest, Text>> texts = {
      {digest_of(1), joined(text_of(1, 3), text_of(2, 2))},
      {digest_of(1), joined(text_of(1, 3), text_of(3, 4))},
      {digest_of(2), text_of(1, 3)}};
  std::size_t frame = 0;
  {
    Life life(path, 32);
    for (const auto& [digest, text] : texts) life.publish(digest, text);
    ASSERT_EQ(life.save(), 12);
    frame = frame_bytes_of(life);
  }
  FramesInFile saved = FramesInFile::read(path, kFileHeaderBytes, frame);
  ASSERT_EQ(saved.frames(), 12);
  const FramesInFile unchanged = saved;
  put_checksum_right(saved.frame(5));
  ASSERT_EQ(saved.bytes, unchanged.bytes);
  Prng prng(kSeed);
  for (int round = 0; round < 400; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    saved.with_lies(prng).write(path);
    Life life(path, prng.below(2) == 0 ? 32 : 6);
    life.load();
    for (const auto& [digest, text] : texts) life.right_tokens(digest, text);
  }
}

}  // namespace
}  // namespace stemma
