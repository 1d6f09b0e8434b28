// RankHostImage: a rank that follows reads and writes the file of its host memory as rank 0 tells
// it.
//
// Rank 0 names pages and places; the bytes are this rank's own, and so is the file: its header and
// each of its frames name the rank. Files of one life have their pages in one order, so each is
// read once, in its order; where they are of different lives, a frame that was passed is read
// again.
//
// Thread:     the one that uses the ranks.                 Invariants: I7, I8 (docs/INVARIANTS.md).
// Memory:     40 bytes a frame that was passed, while it is read; a piece of the file.
// Cost:       reading, or writing, the file.
// Not here:   which pages (cache/host_image_pages), messages (rank_transfers, leading_host_image).
#pragma once

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

// What rank 0 tells. All but kEndLoad, kBeginSave and kSave are answered with a number.
enum class HostFileTask : std::int64_t {
  kBeginLoad,  // 1: there is a file
  kLoad,       // how many of the pages came, from the first on
  kEndLoad,
  kBeginSave,
  kSave,
  kEndSave,  // 1: it is written
  kRemove,   // 1: it is gone
};

// A message of it, and what one says. REQUIRES: write_host_file wrote it; `pages` is blank.
void write_host_file(HostFileTask task, const Transfer& pages, std::vector<std::int64_t>& words);
HostFileTask read_host_file(std::span<const std::int64_t> words, Transfer& pages);

class RankHostImage {
 public:
  // The answer, where there is one. `pages.digest` is this rank's namespace. `image_or_null`:
  // nullptr where it has no file; the same at every call.
  std::optional<std::int64_t> told(const HostImage* image_or_null, HostFileTask task,
                                   const Transfer& pages);

 private:
  bool begin_load(const HostImage& image);
  std::int64_t load(const HostImage& image, const Transfer& pages);
  void end_load();
  std::optional<PageFrameView> find(const PageKey& key);
  void begin_save(const HostImage& image);
  void save(const HostImage& image, const Transfer& pages);
  bool end_save();

  PosixFiles files_;
  std::unique_ptr<HostImageReader> reader_;                        // while it is read
  std::unordered_map<PageKey, std::int64_t, PageKeyHash> passed_;  // frames of pages, by key
  std::unique_ptr<HostImageWriter> writer_;                        // while it is written
};

}  // namespace stemma
