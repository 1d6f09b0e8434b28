// HostImageWindows: pages of the layers with a window, which hang on pages of host memory's tree,
// to a file of their own and from it again.
//
// A windowed page is known by its own key, which the tokens before it make; so the file can be of
// another life than that of the pages they hang on: what fits is used.
//
// Thread:     engine thread only.                   Invariants: I7, I8, I11 (docs/INVARIANTS.md).
// Memory:     while it is read, 60 bytes for each page that it may hang on.
// Cost:       a copy of each page, and the file's time; two hashes for each page of the tree; of
//             several ranks a message and an answer for each stretch of a text.
// Not here:   the pages that they hang on (host_image_pages), the file (tier/host_image_file).
#pragma once

#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "alloc/windowed_holds.h"
#include "cache/host_tier.h"
#include "cache/image_texts.h"
#include "cache/saved_text.h"
#include "stemma/result.h"
#include "tier/host_image_file.h"
#include "tier/host_image_ranks.h"

namespace stemma {

// Pages come one by one; those that continue each other are hung together.
class WindowsLoad {
 public:
  // `texts` are those whose pages have come. REQUIRES: the host tier has windowed pages. Everything
  // must outlive it.
  WindowsLoad(HostTier& host, const HostImage& image, const ImageTexts& texts,
              HostImageRanks* ranks_or_null);

  // False if it is left out: of no text that came, wrong, or without room.
  bool take(const PageFrameView& frame);
  // Hangs what has come.
  void end();
  // Pages that were taken, and that another rank did not have or that found nothing to hang on.
  std::int64_t dropped_pages() const { return dropped_pages_; }

 private:
  PageIdentity identity_of(std::int64_t place);
  void note(std::int64_t place, PageId to);
  void hang_run(std::int64_t pages);

  HostTier& host_;
  const HostImage& image_;
  const ImageTexts& texts_;
  HostImageRanks* ranks_;  // nullptr: there are no others
  Transfer others_;        // their part of the run
  PageKeyHasher hasher_;
  std::unordered_map<PageKey, std::int64_t, PageKeyHash> places_;  // in texts_, by windowed key
  std::int64_t dropped_pages_ = 0;
  // What is about to be hung: each continues the one before.
  std::vector<std::int64_t> run_;          // places in texts_
  std::vector<TakenWindowedPages> taken_;  // one each
  std::vector<TokenId> text_;
  std::vector<PageId> row_;
};

// Writes of each text what no text before it had.
class WindowsSave {
 public:
  // Everything must outlive it. REQUIRES: as WindowsLoad.
  WindowsSave(HostTier& host, const HostImage& image, HostImageWriter& writer,
              HostImageRanks* ranks_or_null)
      : host_(host), image_(image), writer_(writer), ranks_(ranks_or_null) {}

  // What hangs on its first `pages` pages. REQUIRES: `text` was read from `held`.
  Status write(const PrefixLock& held, const SavedText& text, std::int64_t pages);
  std::int64_t written_pages() const { return std::ssize(written_); }

 private:
  bool is_to_be_written(const SavedText& text, std::int64_t page) const;
  void tell_others(const PrefixLock& held, const SavedText& text, std::int64_t first,
                   std::int64_t end);
  Status write_page(const SavedText& text, std::int64_t page);

  HostTier& host_;
  const HostImage& image_;
  HostImageWriter& writer_;
  HostImageRanks* ranks_;  // nullptr: there are no others
  Transfer others_;        // what they write
  PageKeyHasher hasher_;
  std::unordered_set<PageKey, PageKeyHash> written_;  // by the key of what they hang on
};

}  // namespace stemma
