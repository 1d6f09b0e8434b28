// Windowed pages of host memory over a restart: they hang in the next life where they hung in the
// last one, with the same bytes; one that is wrong, of another text or without room stays out, and
// nothing else with it. Never a wrong byte. Faults: rows 2, 3 and 4 (docs/FAULTS.md).
#include "cache/host_image_windows.h"

#include <gmock/gmock-matchers.h>
#include <gmock/gmock-more-matchers.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/flip_bit.h"
#include "base/temp_directory.h"
#include "cache/host_image_pages.h"
#include "cache/keyed_pages_fixture.h"
#include "stemma/log.h"
#include "tier/lying_frames.h"

namespace stemma {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Text = std::vector<TokenId>;
using Ordinals = std::vector<std::int64_t>;

constexpr std::int64_t kPageSize = KeyedPages::kPageSize;
constexpr std::size_t kFileHeaderBytes = 4096;

// One life of host memory: its tree, the bytes of all its layers, and their files.
class Life {
 public:
  Life(const std::string& path, std::int64_t pages, std::int64_t windowed_pages)
      : full_(pages, 1),
        windowed_(windowed_pages, 2),
        full_image_(full_.image(path, digest_of(200))),
        windowed_image_(windowed_.image(path + ".windows", digest_of(200))) {
    KvCacheOptions options;
    options.page_size = kPageSize;
    tier =
        HostTier::open(options, {.pages = pages, .windowed_pages = windowed_pages}, clock_).value();
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
        EXPECT_TRUE(full_.has(saved.ids[page], saved.keys[page])) << "a wrong byte";
        const PageId windowed = windows().of(saved.ids[page]);
        if (!windowed.valid()) continue;
        EXPECT_TRUE(windowed_.has(windowed, saved.keys[page])) << "a wrong byte";
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
  KeyedPages& windowed() { return windowed_; }

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
  KeyedPages full_;
  KeyedPages windowed_;
  HostImage full_image_;
  HostImage windowed_image_;
  NamespaceDigest digest_ = digest_of(1);
};

class HostImageWindows : public ::testing::Test {
 protected:
  void SetUp() override { set_log_level(LogLevel::kError); }
  void TearDown() override { set_log_level(LogLevel::kInfo); }

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
    life.windowed().damage(PageId(1));
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

// Frames of either file whose checksums are right and which say what is not so.
TEST_F(HostImageWindows, NoLieIsEverServed) {
  const std::vector<Text> texts = {text_of(1, 4), joined(text_of(1, 2), text_of(2, 5))};
  std::size_t frame = 0;
  {
    Life life(path, 16, 8);
    for (const Text& text : texts) life.publish(text, 1, 4);
    life.save();
    frame = frame_bytes(life.images().full_or_null->label.format);
  }
  const auto full = FramesInFile::read(path, kFileHeaderBytes, frame);
  const auto windowed = FramesInFile::read(windows_path, kFileHeaderBytes, frame);
  ASSERT_GT(windowed.frames(), 4);
  Prng prng(8);
  for (int round = 0; round < 400; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    (prng.below(4) == 0 ? full.with_lies(prng) : full).write(path);
    windowed.with_lies(prng).write(windows_path);
    Life life(path, 16, 8);
    life.load();
    for (const Text& text : texts) life.right_windows(text);
  }
}

}  // namespace
}  // namespace stemma
