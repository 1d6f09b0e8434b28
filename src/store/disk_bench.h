// Disk bench: pages read and written through DiskPageStore against fio on the same disk, and how
// long a store takes to open.
//
// Thread:     one thread at a time, which fio's life hangs on.
// Memory:     a few batches of frames, and a key a page.
// Cost:       about a minute and 2 GiB of disk at the default size; needs the package fio.
// Not here:   how lines are printed (cli/), what the tier saves (bench_tier_serving).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bench_line.h"
#include "stemma/result.h"

namespace stemma {

struct DiskBenchOptions {
  std::string directory = ".";                 // on the disk; all files are in one of its own in it
  std::int64_t bytes = std::int64_t{1} << 30;  // read or written in a sample, about
  int samples = 7;                             // of ours and of fio's each
  std::int64_t reopened_pages = 100'000;
};

// For frames of 64 KiB and 1 MiB:
//   write: new pages into preallocated slots; bound: fio's direct writes into a file of the same
//     size, preallocated too, with an fdatasync where a call of the store has its group commit (the
//     store has two: of the slab, and of the index).
//   read: all of them in the order in which they were written; bound: fio's direct reads of the
//     same file.
// Both go in calls as transfers make them; fio has the queue depth and the request size of the
// store's queue. And reopen: seconds from opening until lookups find every page of 4 KiB; bound: 2.
// kNotFound: fio cannot be run.
Result<std::vector<BenchLine>> bench_disk(const DiskBenchOptions& options);

}  // namespace stemma
