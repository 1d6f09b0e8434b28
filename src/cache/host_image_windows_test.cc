// Windowed pages of host memory over a restart: they hang in the next life where they hung in the
// last one, with the same bytes; one that is wrong, of another text or without room stays out, and
// nothing else with it. Never a wrong byte. Faults: rows 2, 3 and 4 (docs/FAULTS.md).
#include "cache/host_image_windows.h"

#include <gmock/gmock-matchers.h>
#include <gmock/gmock-more-matchers.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/flip_bit.h"
#include "base/temp_directory.h"
#include "cache/host_image_pages.h"
#include "pool/pool_fixture.h"
#include "stemma/log.h"
#include "tier/page_work.h"

namespace stemma {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Text = std::vector<TokenId>;
using Ordinals = std::vector<std::int64_t>;

constexpr std::int64_t kPageSize = 4;
constexpr std::int64_t kLayers = 2;
constexpr std::size_t kFileHeaderBytes = 4096;

// `pages` pages of a text, which no other first token begins.
Text text_of(TokenId first, std::int64_t pages) {
  Text text;
  for (std::int64_t i = 0; i < pages * kPageSize; ++i) {
    text.push_back(static_cast<TokenId>(first * 1000 + i));
  }
  return text;
}

// Pages of some layers in host memory: what each holds follows from its key.
class Pages {
 public:
  Pages(std::int64_t pages, std::uint64_t seed)
      : device_(make_test_pool({.layers = kLayers,
                                .pages = 2,
                                .page_size = kPageSize,
                                .heads = 2,
                                .head_dim = 20,
                                .dtype = DType::kBF16},
                               KvLayout::kLayerFirst)),
        seed_(seed) {
    ThreadPool threads(1);
    HostPoolOptions options;
    options.pages = pages;
    options.layers = kLayers;
    options.layer_bytes = device_->layer_bytes();
    pool_ = HostPool::create(options, threads).value();
  }
  void put(PageId id, const PageKey& key) {
    const std::vector<std::byte> bytes = bytes_of(key);
    const std::size_t half = bytes.size() / 2;
    const std::vector<std::uint32_t> sums = {crc32c(std::span(bytes).first(half)),
                                             crc32c(std::span(bytes).subspan(half))};
    ASSERT_EQ(pool_->write_image(id, key, bytes, sums), MoveVerdict::kDone);
  }
  void expect_right(PageId id, const PageKey& key) {
    std::vector<std::byte> bytes(page_image_bytes(*device_));
    std::vector<std::uint32_t> sums(kLayers);
    EXPECT_EQ(pool_->read_image(id, key, bytes, sums), MoveVerdict::kDone);
    EXPECT_EQ(bytes, bytes_of(key)) << "a wrong byte";
  }
  HostImage image(const std::string& path) {
    NamespaceDigest model;
    model.bytes[0] = 200;
    return HostImage{*pool_, path, {page_format(*device_), model}};
  }
  HostPool& pool() { return *pool_; }

 private:
  std::vector<std::byte> bytes_of(const PageKey& key) const {
    std::uint64_t seed = 0;
    std::memcpy(&seed, key.bytes.data(), sizeof(seed));
    Prng prng(seed + seed_);
    std::vector<std::byte> bytes(page_image_bytes(*device_));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(prng());
    return bytes;
  }

  std::unique_ptr<MhaPool> device_;
  std::uint64_t seed_;
  std::unique_ptr<HostPool> pool_;
};

// One life of host memory: its tree, the bytes of all its layers, and their files.
class Life {
 public:
  Life(const std::string& path, std::int64_t pages, std::int64_t windowed_pages)
      : full_(pages, 1),
        windowed_(windowed_pages, 2),
        full_image_(full_.image(path)),
        windowed_image_(windowed_.image(path + ".windows")) {
    KvCacheOptions options;
    options.page_size = kPageSize;
    tier =
        HostTier::open(options, {.pages = pages, .windowed_pages = windowed_pages}, clock_).value();
    digest_.bytes[0] = 1;
  }

  // Publishes a text of which the pages from `first_window` to before `end_window` have windowed
  // ones.
  void publish(const Text& text, std::int64_t first_window, std::int64_t end_window) {
    with_text(text, [&](PrefixLock& held) {
      const std::int64_t first = held.tokens() / kPageSize;
      OwnedPages target = *tier->space().try_take(std::ssize(text) / kPageSize - first);
      held = tier->tree().insert(text, std::move(held), std::move(target), {});
      SavedText saved;
      saved.read(tier->tree(), held);
      for (std::size_t page = 0; page < saved.keys.size(); ++page) {
        const auto ordinal = static_cast<std::int64_t>(page);
        if (ordinal >= first) full_.put(saved.ids[page], saved.keys[page]);
        if (ordinal < first_window || ordinal >= end_window) continue;
        auto taken = TakenWindowedPages::try_take(windows(), 1);
        windowed_.put(taken.ids().front(), saved.keys[page]);
        taken.hang(0, saved.ids[page]);
      }
    });
  }

  // Pages of a text that windowed ones hang on, each with the right bytes.
  Ordinals right_windows(const Text& text) {
    Ordinals found;
    with_text(text, [&](PrefixLock& held) {
      SavedText saved;
      saved.read(tier->tree(), held);
      for (std::size_t page = 0; page < saved.keys.size(); ++page) {
        full_.expect_right(saved.ids[page], saved.keys[page]);
        const PageId windowed = windows().of(saved.ids[page]);
        if (!windowed.valid()) continue;
        windowed_.expect_right(windowed, saved.keys[page]);
        found.push_back(static_cast<std::int64_t>(page));
      }
    });
    return found;
  }

  std::int64_t save() { return save_host_image(*tier, images()).value(); }
  HostImageCounts load() {
    const HostImageCounts counts = load_host_image(*tier, images());
    EXPECT_EQ(tier->tree().audit(), std::nullopt);
    EXPECT_EQ(tier->tree().locks(), 0);
    const std::vector<std::int32_t> held(static_cast<std::size_t>(windows().total_pages()));
    EXPECT_EQ(windows().audit(held), std::nullopt);
    return counts;
  }
  HostImages images() const { return {&full_image_, &windowed_image_}; }
  WindowedPages& windows() { return *tier->windowed_or_null(); }
  Pages& windowed() { return windowed_; }

  std::unique_ptr<HostTier> tier;

 private:
  template <typename Use>
  void with_text(const Text& text, Use&& use) {
    const NamespaceId name = tier->tree().try_open_namespace(digest_).value();
    PrefixLock held = tier->tree().match(name, text);
    use(held);
    held.reset();
    tier->tree().close_namespace(name);
  }

  FakeClock clock_;
  Pages full_;
  Pages windowed_;
  HostImage full_image_;
  HostImage windowed_image_;
  NamespaceDigest digest_;
};

class HostImageWindows : public ::testing::Test {
 protected:
  void SetUp() override { set_log_level(LogLevel::kError); }
  void TearDown() override { set_log_level(LogLevel::kInfo); }

  static Text joined(Text text, const Text& more) {
    text.insert(text.end(), more.begin(), more.end());
    return text;
  }
  // Where the body of a frame of windowed pages lies.
  static std::size_t body_of(const Life& life, std::size_t frame) {
    const PageFormat& format = life.images().windowed_or_null->label.format;
    return kFileHeaderBytes + frame * frame_bytes(format) + frame_body_offset(format);
  }

  TempDirectory directory;
  std::string path = directory.file("host");
  std::string windows_path = path + ".windows";
};

//   0 1 2 3 4 5        windowed are 2 3 and 5
//       │
//       6 7 8          and 8 of this one
TEST_F(HostImageWindows, HangInTheNextLifeWhereTheyHungInTheLast) {
  const Text trunk = text_of(1, 6);
  const Text branch = joined(text_of(1, 3), text_of(2, 3));
  {
    Life life(path, 16, 8);
    life.publish(trunk, 2, 4);
    life.publish(trunk, 5, 6);
    life.publish(branch, 5, 6);
    EXPECT_EQ(life.save(), 6 + 3 + 4);
  }
  Life life(path, 16, 8);
  const HostImageCounts counts = life.load();
  EXPECT_EQ(counts.loaded, 6 + 3 + 4);
  EXPECT_EQ(counts.left_out, 0);
  EXPECT_THAT(life.right_windows(trunk), ElementsAre(2, 3, 5));
  EXPECT_THAT(life.right_windows(branch), ElementsAre(2, 5));
  EXPECT_EQ(life.save(), 6 + 3 + 4) << "and so on";
}

TEST_F(HostImageWindows, AWrongOneStaysOutAlone) {
  const Text text = text_of(1, 6);
  {
    Life life(path, 16, 8);
    life.publish(text, 2, 6);
    life.save();
    flip_bit(windows_path, body_of(life, 1));
  }
  Life life(path, 16, 8);
  const HostImageCounts counts = life.load();
  EXPECT_EQ(counts.loaded, 6 + 3);
  EXPECT_EQ(counts.left_out, 1);
  EXPECT_THAT(life.right_windows(text), ElementsAre(2, 4, 5));
}

TEST_F(HostImageWindows, OneThatIsWrongInHostMemoryIsNotSaved) {
  const Text text = text_of(1, 4);
  {
    Life life(path, 16, 8);
    life.publish(text, 1, 4);
    life.windowed().pool().layer_image(PageId(1), 1)[3] ^= std::byte{1};
    EXPECT_EQ(life.save(), 4 + 2);
  }
  Life life(path, 16, 8);
  EXPECT_EQ(life.load().loaded, 4 + 2);
}

// The pages they hang on are of a file that is whole, or of another life.
TEST_F(HostImageWindows, OfAnotherLifeAreUsedWhereTheyFit) {
  const Text kept = text_of(1, 4);
  const Text gone = text_of(2, 4);
  const std::string old_windows = directory.file("old");
  {
    Life life(path, 16, 8);
    life.publish(kept, 2, 4);
    life.publish(gone, 2, 4);
    life.save();
    std::filesystem::rename(windows_path, old_windows);
  }
  {
    Life life(path, 16, 8);
    life.publish(kept, 0, 0);
    life.save();
    std::filesystem::rename(old_windows, windows_path);
  }
  Life life(path, 16, 8);
  const HostImageCounts counts = life.load();
  EXPECT_EQ(counts.loaded, 4 + 2);
  EXPECT_EQ(counts.left_out, 2);
  EXPECT_THAT(life.right_windows(kept), ElementsAre(2, 3));
}

TEST_F(HostImageWindows, ThatAreLostLeaveTheOthers) {
  const Text text = text_of(1, 4);
  {
    Life life(path, 16, 8);
    life.publish(text, 2, 4);
    life.save();
    std::filesystem::remove(windows_path);
  }
  Life life(path, 16, 8);
  EXPECT_EQ(life.load().loaded, 4);
  EXPECT_THAT(life.right_windows(text), IsEmpty());
}

// Files of equal frames, one in the place of the other.
TEST_F(HostImageWindows, PagesOfOtherLayersAreNeverTakenForThem) {
  const Text text = text_of(1, 4);
  {
    Life life(path, 16, 8);
    life.publish(text, 2, 4);
    life.save();
    std::filesystem::copy_file(path, windows_path,
                               std::filesystem::copy_options::overwrite_existing);
  }
  Life life(path, 16, 8);
  const HostImageCounts counts = life.load();
  EXPECT_EQ(counts.loaded, 4);
  EXPECT_EQ(counts.left_out, 4);
  EXPECT_THAT(life.right_windows(text), IsEmpty());
}

TEST_F(HostImageWindows, WhereThereIsLessMemoryTheWarmestAreThere) {
  const std::vector<Text> texts = {text_of(1, 3), text_of(2, 3), text_of(3, 3)};
  {
    Life life(path, 16, 8);
    for (const Text& text : texts) life.publish(text, 1, 3);
    life.save();
  }
  Life few(path, 16, 3);
  few.load();
  EXPECT_THAT(few.right_windows(texts[2]), ElementsAre(1, 2));
  Life small(path, 6, 8);
  small.load();
  EXPECT_THAT(small.right_windows(texts[0]), IsEmpty());
  EXPECT_THAT(small.right_windows(texts[1]), ElementsAre(1, 2));
  EXPECT_THAT(small.right_windows(texts[2]), ElementsAre(1, 2));
}

TEST_F(HostImageWindows, NoDamageIsEverServed) {
  const std::vector<Text> texts = {text_of(1, 4), text_of(2, 5)};
  {
    Life life(path, 16, 8);
    for (const Text& text : texts) life.publish(text, 2, 4);
    life.save();
  }
  const std::string whole = directory.file("whole");
  std::filesystem::copy_file(windows_path, whole);
  Prng prng(7);
  for (int round = 0; round < 200; ++round) {
    std::filesystem::copy_file(whole, windows_path,
                               std::filesystem::copy_options::overwrite_existing);
    flip_bit(windows_path, static_cast<std::size_t>(prng.below(
                               static_cast<std::int64_t>(std::filesystem::file_size(whole)))));
    Life life(path, 16, 8);
    const HostImageCounts counts = life.load();
    EXPECT_GE(counts.loaded, 9) << "the others";
    for (const Text& text : texts) life.right_windows(text);
  }
}

}  // namespace
}  // namespace stemma
