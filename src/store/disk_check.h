// DiskCheck: what lies in the directory of a disk store: listing it, verifying all of it, repairing
// it.
//
// A check reads every frame whole; what it finds wrong, a store would find when it reads the page.
// A repair writes the index anew from the pages that are right: those the index names and, where
// the index is lost or damaged, those that only their frames tell of.
//
// Thread:     one, while no store is open.
// Memory:     the index, and some frames.
// Cost:       list: the index. check: all bytes of all slabs.
// Not here:   how it is shown (cli/).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "stemma/prefix_cache.h"
#include "stemma/result.h"
#include "store/disk_files.h"
#include "store/disk_index.h"

namespace stemma {

struct DiskNamespace {
  NamespaceDigest digest;
  std::string description;  // empty if nobody said
  std::int64_t pages = 0;
  std::int64_t bytes = 0;         // of its frames
  std::int64_t oldest_age_s = 0;  // by the wall clock; for people
  std::int64_t newest_age_s = 0;
};

struct DiskListing {
  std::vector<DiskNamespace> namespaces;  // most pages first
  std::int64_t pages = 0;
  std::int64_t slots = 0;
  std::int64_t slab_files = 0;
  std::int64_t bytes = 0;  // of all files
};

// Something that is not as it should be.
struct DiskFinding {
  std::string file;
  std::int32_t slot = -1;  // none: the file itself
  PageKey key;             // of a slot that the index gives to a page
  std::string what;
};

struct DiskCheckOptions {
  bool repair = false;
  std::int64_t deadline_us = 0;  // of the whole
};

struct DiskCheckReport {
  std::vector<DiskFinding> findings;
  std::int64_t good_pages = 0;
  std::int64_t bad_pages = 0;    // named by the index, and not right
  std::int64_t found_pages = 0;  // right, and not named by an index that is lost or damaged
  bool repaired = false;
};

// What the index says is there. Works beside a running store, whose last calls it may miss. kIo,
// kNotFound: no store has ever been here.
Result<DiskListing> list_disk(DiskFiles& files, std::int64_t deadline_us);

// Verifies everything. kIo if the directory or the repair cannot be written.
Result<DiskCheckReport> check_disk(DiskFiles& files, const DiskCheckOptions& options);

}  // namespace stemma
