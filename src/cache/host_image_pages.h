// HostImagePages: the pages of host memory's tree, to a file and from it again.
//
// They are written in the order in which they would be evicted, text by text, each page behind the
// one that it continues: what is read last is then the warmest, and where there is less memory than
// before, the coldest pages have gone. What hangs on them, of layers with a window, has a file of
// its own (host_image_windows).
//
// Thread:     engine thread only.                   Invariants: I7, I8, I11 (docs/INVARIANTS.md).
// Memory:     while it runs, about 190 bytes and the tokens of each page.
// Cost:       a copy of each page, and the file's time; of several ranks a message and an answer
//             for each stretch of a text that comes, after another's.
// Not here:   the file (tier/host_image_file), when it is written (tiering).
#pragma once

#include <cstdint>
#include <span>

#include "cache/host_tier.h"
#include "stemma/result.h"
#include "tier/host_image_file.h"
#include "tier/host_image_ranks.h"

namespace stemma {

// Of all layers, those with a window included.
struct HostImageCounts {
  std::int64_t loaded = 0;    // pages
  std::int64_t left_out = 0;  // wrong, without the page they continue, or without room
};

// Fills a host tier that nobody has used yet. A page comes in only if its tokens and the page that
// it continues make its key, and its bytes their sums; a windowed page where the page of its tokens
// did. A file that is not there, or another model's, gives nothing; the latter is logged.
// With `ranks_or_null`, a page comes in only if every rank has its part of it.
// REQUIRES: images.full_or_null != nullptr; there is one of windowed pages where the tier has them.
HostImageCounts load_host_image(HostTier& host, const HostImages& images,
                                HostImageRanks* ranks_or_null = nullptr);

// Writes every page that nobody holds, and those of `held`; how many that were. With
// `ranks_or_null` every rank writes its part of them; an error of any of them is one. REQUIRES: as
// load_host_image; nothing of `held` is in quarantine.
Result<std::int64_t> save_host_image(HostTier& host, const HostImages& images,
                                     HostImageRanks* ranks_or_null = nullptr,
                                     std::span<const PrefixLock> held = {});

}  // namespace stemma
