// Host memory of several ranks over a restart, each with a file of its own: what all saved whole
// the next life has, on every rank its own bytes; a page that one rank lacks, or has wrong, is
// nobody's, with what continues it and nothing else. Never a wrong byte.
// Faults: rows 2, 3 and 4 (docs/FAULTS.md).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/flip_bit.h"
#include "base/open_files_fixture.h"
#include "base/temp_directory.h"
#include "cache/host_image_pages.h"
#include "cache/keyed_pages_fixture.h"
#include "device/rank_message.h"
#include "device/thread_ranks_fixture.h"
#include "prefix/namespace_digest.h"
#include "stemma/log.h"
#include "tier/leading_host_image.h"
#include "tier/rank_host_image.h"
#include "tier/rank_transfers.h"

namespace stemma {
namespace {

using Text = std::vector<TokenId>;

constexpr int kRanks = 3;
constexpr std::int64_t kPageSize = KeyedPages::kPageSize;
constexpr std::int64_t kPages = 48;
constexpr std::size_t kFileHeaderBytes = 4096;

// A rank's host memory and the file of it.
class RankHost final : public LowerTiers {
 public:
  RankHost(const std::string& path, int rank, const NamespaceDigest& model)
      : pages_(kPages, static_cast<std::uint64_t>(rank)),
        image_(pages_.image(path, rank == 0 ? model : of_rank(model, rank))) {}
  std::int64_t host_pages() const override { return kPages; }
  std::span<PageStore* const> stores() const override { return {}; }
  std::unique_ptr<TransferLanes> open_lanes(std::int64_t) override { return nullptr; }
  const HostImage* host_image_or_null() const override { return &image_; }

  KeyedPages& pages() { return pages_; }
  std::size_t frame() const { return frame_bytes(image_.label.format); }

 private:
  KeyedPages pages_;  // each rank's have bytes of their own
  HostImage image_;
};

class RankedHostImage : public ::testing::Test {
 protected:
  void SetUp() override { set_log_level(LogLevel::kError); }
  void TearDown() override { set_log_level(LogLevel::kInfo); }

  // One life of all ranks' host memory: rank 0 does `lead`, the others what it tells.
  void live(const std::function<void()>& lead, const NamespaceDigest& model = digest_of(200)) {
    KvCacheOptions options;
    options.page_size = kPageSize;
    tier = HostTier::open(options, {.pages = kPages}, clock).value();
    hosts.clear();
    for (int rank = 0; rank < kRanks; ++rank) {
      hosts.push_back(std::make_unique<RankHost>(path(rank), rank, model));
    }
    ThreadRanks(kRanks).run([&](RankGroup& ranks) {
      if (ranks.rank() > 0) return follow(ranks);
      LeadingHostImage leader(ranks);
      others = &leader;
      lead();
      EXPECT_TRUE(tell(ranks, {RankTask::kEnd}, {}).ok());
    });
  }
  void follow(RankGroup& ranks) {
    const auto rank = static_cast<std::size_t>(ranks.rank());
    RankTransfers transfers(*hosts[rank], ranks, clock);
    std::vector<std::int64_t> words;
    for (;;) {
      const auto heard = hear(ranks, words);
      ASSERT_TRUE(heard.ok());
      if (heard->task == RankTask::kEnd) return;
      ASSERT_TRUE(transfers.told(heard->task, words).ok());
    }
  }

  // Publishes a text of whole pages, which every rank has.
  std::vector<PageId> publish(const NamespaceDigest& digest, const Text& text) {
    RadixPrefixCache& tree = tier->tree();
    const NamespaceId name = tree.try_open_namespace(digest).value();
    PrefixLock held = tree.match(name, text);
    const std::int64_t first = held.tokens() / kPageSize;
    OwnedPages target = std::move(*tier->space().try_take(std::ssize(text) / kPageSize - first));
    std::vector<PageId> ids(static_cast<std::size_t>(target.pages()));
    target.copy_to(ids);
    held = tree.insert(text, std::move(held), std::move(target), {});
    std::vector<PageKey> keys(ids.size());
    held.copy_page_keys(first, keys);
    for (const auto& host : hosts) {
      for (std::size_t i = 0; i < ids.size(); ++i) host->pages().put(ids[i], keys[i]);
    }
    held.reset();
    tree.close_namespace(name);
    return ids;
  }

  // Pages of a text that are there, each with every rank's right bytes.
  std::int64_t right_pages(const NamespaceDigest& digest, const Text& text) {
    RadixPrefixCache& tree = tier->tree();
    const NamespaceId name = tree.try_open_namespace(digest).value();
    const PrefixLock held = tree.match(name, text);
    std::vector<PageId> ids(static_cast<std::size_t>(held.tokens() / kPageSize));
    std::vector<PageKey> keys(ids.size());
    held.copy_pages(0, ids);
    held.copy_page_keys(0, keys);
    for (const auto& host : hosts) {
      for (std::size_t i = 0; i < ids.size(); ++i) EXPECT_TRUE(host->pages().has(ids[i], keys[i]));
    }
    tree.close_namespace(name);
    return std::ssize(ids);
  }

  Result<std::int64_t> save() {
    return save_host_image(*tier, {hosts[0]->host_image_or_null()}, others);
  }
  HostImageCounts load() {
    const auto counts = load_host_image(*tier, {hosts[0]->host_image_or_null()}, others);
    EXPECT_EQ(tier->tree().audit(), std::nullopt);
    EXPECT_EQ(tier->allocator().audit(), std::nullopt);
    EXPECT_EQ(tier->allocator().owned_pages(), 0);
    EXPECT_EQ(tier->tree().locks(), 0);
    EXPECT_EQ(tier->allocator().released_pages(), counts.loaded);
    return counts;
  }
  std::string path(int rank) const { return directory.file("host.rank" + std::to_string(rank)); }
  std::size_t frame_at(std::size_t page) const {
    return kFileHeaderBytes + page * hosts[0]->frame();
  }
  // A life in which these texts were published, and saved.
  void save_texts(const std::vector<Text>& texts) {
    live([&] {
      for (const Text& text : texts) publish(digest_of(1), text);
      EXPECT_TRUE(save().ok());
    });
  }

  TempDirectory directory;
  FakeClock clock;
  std::unique_ptr<HostTier> tier;
  std::vector<std::unique_ptr<RankHost>> hosts;
  HostImageRanks* others = nullptr;
};

//        shared(3) ─┬─ left(2)
//   1:              └─ right(4) ─── deep(1)
//   2:   shared(3)                                    the same tokens, another namespace
TEST_F(RankedHostImage, TheNextLifeHasWhatTheLastOneHadOnEveryRank) {
  const Text shared = text_of(1, 3);
  const Text left = joined(shared, text_of(2, 2));
  const Text deep = joined(joined(shared, text_of(3, 4)), text_of(4, 1));
  live([&] {
    for (const Text& text : {shared, left, deep}) publish(digest_of(1), text);
    publish(digest_of(2), shared);
    EXPECT_EQ(*save(), 13);
  });
  live([&] {
    const HostImageCounts counts = load();
    EXPECT_EQ(counts.loaded, 13);
    EXPECT_EQ(counts.left_out, 0);
    EXPECT_EQ(right_pages(digest_of(1), left), 5);
    EXPECT_EQ(right_pages(digest_of(1), deep), 8);
    EXPECT_EQ(right_pages(digest_of(2), left), 3);
    EXPECT_EQ(*save(), 13) << "and so on";
  });
}

TEST_F(RankedHostImage, AFileThatOneRankLostGivesNothing) {
  for (int rank = 0; rank < kRanks; ++rank) {
    save_texts({text_of(1, 3)});
    std::filesystem::remove(path(rank));
    live([&] {
      EXPECT_EQ(load().loaded, 0);
      publish(digest_of(1), text_of(1, 3));
      EXPECT_EQ(*save(), 3) << "and is written anew";
    });
    live([&] { EXPECT_EQ(load().loaded, 3); });
  }
}

TEST_F(RankedHostImage, WhereOneRankHasNoFileTheOthersCloseTheirs) {
  save_texts({text_of(1, 3)});
  std::filesystem::remove(path(2));
  live([&] {
    EXPECT_EQ(load().loaded, 0);
    EXPECT_FALSE(others->end_save().ok()) << "the others have heard all that was told before";
    EXPECT_FALSE(is_any_open(path(1)));
  });
}

// A rank alone, as it is told.
TEST_F(RankedHostImage, WhatWasBegunIsDroppedWithASaveAndWithTheFile) {
  const RankHost host(path(0), 0, digest_of(200));
  const HostImages images{host.host_image_or_null(), nullptr};
  const Transfer none;
  const std::string unfinished = path(0) + ".new";
  RankHostImage rank;
  for (const HostFileTask end : {HostFileTask::kDropSave, HostFileTask::kRemove}) {
    rank.told(images, HostFileTask::kBeginSave, none);
    EXPECT_TRUE(std::filesystem::exists(unfinished));
    EXPECT_NE(rank.told(images, end, none), 0);
    EXPECT_FALSE(std::filesystem::exists(unfinished));
    EXPECT_FALSE(is_any_open(path(0)));
    EXPECT_EQ(rank.told(images, HostFileTask::kEndSave, none), 0) << "there is nothing to end";
  }
  save_texts({text_of(1, 3)});
  EXPECT_EQ(rank.told(images, HostFileTask::kBeginLoad, none), 1);
  EXPECT_EQ(rank.told(images, HostFileTask::kRemove, none), 1);
  EXPECT_FALSE(is_any_open(path(0)));
}

TEST_F(RankedHostImage, WhereOneRanksFileIsCutOffTheRestIsNobodys) {
  for (int rank = 0; rank < kRanks; ++rank) {
    save_texts({text_of(1, 4), text_of(2, 2)});
    std::filesystem::resize_file(path(rank), frame_at(2) + 17);
    live([&] {
      const HostImageCounts counts = load();
      EXPECT_EQ(counts.loaded, 2);
      EXPECT_EQ(right_pages(digest_of(1), text_of(1, 4)), 2);
      EXPECT_EQ(right_pages(digest_of(1), text_of(2, 2)), 0);
    });
  }
}

TEST_F(RankedHostImage, AWrongPageOfOneRankStaysOutWithWhatContinuesIt) {
  const Text trunk = text_of(1, 4);
  const Text branch = joined(text_of(1, 2), text_of(2, 2));
  for (int rank = 0; rank < kRanks; ++rank) {
    for (const std::size_t at : {std::size_t{90}, kFrameAlignment + 5}) {
      SCOPED_TRACE(testing::Message() << "rank " << rank << ", byte " << at);
      save_texts({trunk, branch, text_of(3, 2)});
      flip_bit(path(rank), frame_at(2) + at);
      live([&] {
        const HostImageCounts counts = load();
        EXPECT_EQ(counts.loaded, 6);
        EXPECT_EQ(counts.left_out, 2);
        EXPECT_EQ(right_pages(digest_of(1), trunk), 2);
        EXPECT_EQ(right_pages(digest_of(1), branch), 4);
        EXPECT_EQ(right_pages(digest_of(1), text_of(3, 2)), 2);
      });
    }
  }
}

TEST_F(RankedHostImage, AnotherRanksFileIsRefused) {
  save_texts({text_of(1, 3)});
  std::filesystem::copy_file(path(1), path(2), std::filesystem::copy_options::overwrite_existing);
  live([&] { EXPECT_EQ(load().loaded, 0); });
}

// Its frames under a header of one's own.
TEST_F(RankedHostImage, AnotherRanksFramesStayOut) {
  save_texts({text_of(1, 3)});
  const auto read = [](const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    return std::string((std::istreambuf_iterator<char>(in)), {});
  };
  const std::string mixed =
      read(path(2)).substr(0, kFileHeaderBytes) + read(path(1)).substr(kFileHeaderBytes);
  std::ofstream(path(2), std::ios::binary) << mixed;
  live([&] {
    const HostImageCounts counts = load();
    EXPECT_EQ(counts.loaded, 0);
    EXPECT_EQ(counts.left_out, 3);
  });
}

// Their namespaces name how many ranks there are.
TEST_F(RankedHostImage, FilesOfAnotherNumberOfRanksAreRefused) {
  save_texts({text_of(1, 3)});
  live([&] { EXPECT_EQ(load().loaded, 0); }, digest_of(201));
}

TEST_F(RankedHostImage, OfFilesOfDifferentLivesThereIsWhatBothHave) {
  save_texts({text_of(9, 1), text_of(1, 3), text_of(2, 2)});
  std::filesystem::copy_file(path(1), directory.file("old"));
  save_texts({text_of(2, 2), text_of(3, 4), text_of(1, 2)});
  std::filesystem::rename(directory.file("old"), path(1));
  live([&] {
    EXPECT_EQ(load().loaded, 4);
    EXPECT_EQ(right_pages(digest_of(1), text_of(1, 3)), 2);
    EXPECT_EQ(right_pages(digest_of(1), text_of(2, 2)), 2);
    EXPECT_EQ(right_pages(digest_of(1), text_of(3, 4)), 0);
  });
}

TEST_F(RankedHostImage, APageThatIsWrongInOneRanksMemoryIsNobodys) {
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    live([&] {
      const auto ids = publish(digest_of(1), text_of(1, 3));
      hosts[rank]->pages().damage(ids[1]);
      EXPECT_TRUE(save().ok());
    });
    live([&] {
      EXPECT_EQ(load().loaded, 1);
      EXPECT_EQ(right_pages(digest_of(1), text_of(1, 3)), 1);
    });
  }
}

TEST_F(RankedHostImage, AFileThatOneRankCannotWriteIsAnError) {
  std::filesystem::create_directory(path(2) + ".new");
  live([&] {
    publish(digest_of(1), text_of(1, 3));
    const auto saved = save();
    ASSERT_FALSE(saved.ok());
    EXPECT_NE(saved.error().detail.find("rank 2"), std::string::npos) << saved.error().detail;
  });
  live([&] { EXPECT_EQ(load().loaded, 0); });
}

TEST_F(RankedHostImage, RemovingRemovesAll) {
  save_texts({text_of(1, 3)});
  live([&] { EXPECT_TRUE(others->remove().ok()); });
  EXPECT_TRUE(std::filesystem::exists(path(0))) << "rank 0 does that itself";
  for (int rank = 1; rank < kRanks; ++rank) EXPECT_FALSE(std::filesystem::exists(path(rank)));
}

// Random trees, random damage on any of the ranks. What is there afterwards is right, and where
// nothing was hit nothing is lost.
TEST_F(RankedHostImage, NoDamageOfAnyRankIsEverServed) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Prng prng(seed);
    std::vector<Text> texts;
    std::int64_t saved = 0;
    live([&] {
      for (int i = 0; i < 10; ++i) {
        Text text;
        for (std::int64_t more = prng.below(4); more >= 0; --more) {
          text = joined(text, text_of(static_cast<TokenId>(prng.below(3)), 1));
        }
        texts.push_back(text);
        publish(digest_of(1), text);
      }
      saved = *save();
    });
    const std::int64_t flips = prng.below(4);
    for (std::int64_t i = 0; i < flips; ++i) {
      const auto byte = prng.below(saved * static_cast<std::int64_t>(hosts[0]->frame()));
      flip_bit(path(static_cast<int>(prng.below(kRanks))),
               kFileHeaderBytes + static_cast<std::size_t>(byte));
    }
    const bool cut = prng.below(3) == 0;
    if (cut) {
      const auto pages = static_cast<std::size_t>(prng.below(saved));
      std::filesystem::resize_file(path(static_cast<int>(prng.below(kRanks))), frame_at(pages));
    }
    live([&] {
      const HostImageCounts counts = load();
      EXPECT_LE(counts.loaded, saved);
      EXPECT_TRUE(flips > 0 || cut || counts.loaded == saved);
      for (const Text& text : texts) right_pages(digest_of(1), text);
    });
  }
}

}  // namespace
}  // namespace stemma
