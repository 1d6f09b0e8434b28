// RankHostImage: a rank that follows reads and writes the file of its host memory as rank 0 tells
// it.
//
// Rank 0 names pages and places; the bytes are this rank's own, and so is the file: its header and
// each of its frames name the rank; layers with a window have a file of their own. Files of one
// life have their pages in one order, so each is
// read once, in its order; where they are of different lives, a frame that was passed is read
// again.
//
// Thread:     the one that uses the ranks.                 Invariants: I7, I8 (docs/INVARIANTS.md).
// Memory:     40 bytes a frame that was passed, while it is read; a piece of the file.
// Cost:       reading, or writing, the file.
// Not here:   which pages (cache/host_image_pages), messages (rank_transfers, leading_host_image).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "prefix/page_key.h"
#include "tier/host_image_file.h"
#include "tier/transfer.h"

namespace stemma {

// What rank 0 tells. All but kEndLoad, kBeginSave, kSave and kDropSave are answered with a number.
enum class HostFileTask : std::int64_t {
  kBeginLoad,  // 1: there is a file
  kLoad,       // how many of the pages came, from the first on
  kEndLoad,
  kBeginSave,
  kSave,
  kEndSave,  // 1: it is written
  kDropSave,
  kRemove,  // 1: it is gone
};

// A message of it, and what one says. REQUIRES: write_host_file wrote it; `pages` is blank.
void write_host_file(HostFileTask task, const Transfer& pages, std::vector<std::int64_t>& words);
HostFileTask read_host_file(std::span<const std::int64_t> words, Transfer& pages);

class RankHostImage {
 public:
  // The answer, where there is one. `pages.digest` is this rank's namespace; `images` are its own,
  // the same at every call.
  std::optional<std::int64_t> told(const HostImages& images, HostFileTask task,
                                   const Transfer& pages);

 private:
  // One of its files.
  struct File {
    std::unique_ptr<HostImageReader> reader;                        // while it is read
    std::unordered_map<PageKey, std::int64_t, PageKeyHash> passed;  // frames of pages, by key
    std::unique_ptr<HostImageWriter> writer;                        // while it is written
  };

  bool begin_load(const HostImages& images);
  std::unique_ptr<HostImageReader> open_or_null(const HostImage& image);
  std::int64_t load(const HostImages& images, const Transfer& pages);
  void end_load();
  static std::optional<PageFrameView> find(File& file, const PageKey& key);
  void begin_save(const HostImages& images);
  void drop_save();
  void save(const HostImages& images, const Transfer& pages);
  bool end_save(const HostImages& images);
  File& file_of(LayerGroup group) { return own_[static_cast<std::size_t>(group)]; }

  PosixFiles files_;
  std::array<File, 2> own_;  // by LayerGroup
  PageKeyHasher hasher_;
};

}  // namespace stemma
