// PurgeFile: what is to be forgotten, and is not yet, from one life to the next: purges and
// removals that page stores have not confirmed. Without it a page that was purged, or found to be
// wrong, while its store was down would be found again by the next life.
//
//   header   24 bytes: magic, version, checksum, length
//   body     twice the same, each with such a header of its own: whether the file of host memory
//            stays, purges, removals, wrong shared pages
//
// It is written anew when there is more to remember, and when all is done: a file beside it takes
// its name when it is durable. One of which both copies are damaged may have said anything: then
// everything is to be forgotten.
//
// Thread:     one at a time.
// Memory:     what it says.
// Cost:       open: reading it; keep: writing it, and waiting until that is durable.
// Not here:   what is remembered, and when (cache/tiering_unconfirmed).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file_lock.h"
#include "base/own_process.h"
#include "stemma/ids.h"
#include "stemma/page_store.h"
#include "stemma/prefix_cache.h"
#include "stemma/result.h"
#include "tier/transfer.h"

namespace stemma {

// A store as the next life knows it again, wherever it lies by then: "remote:redis". Those that are
// alike have everything to forget that one of them has.
std::string purge_label(const PageStore& store);

// As PageStore::purge_behind.
struct UnconfirmedPurge {
  std::string store;
  std::vector<NamespaceFamily> namespaces;  // sorted; none: all
  std::int64_t pages_before = 0;

  friend bool operator==(const UnconfirmedPurge&, const UnconfirmedPurge&) = default;
};

// Wrong pages.
struct UnconfirmedRemoval {
  std::string store;
  LayerGroup group = LayerGroup::kFull;
  std::vector<PageKey> keys;

  friend bool operator==(const UnconfirmedRemoval&, const UnconfirmedRemoval&) = default;
};

// As Grafts::try_note_wrong.
struct WrongShared {
  NamespaceDigest digest;
  std::int64_t tokens = 0;

  friend bool operator==(const WrongShared&, const WrongShared&) = default;
};

struct Unconfirmed {
  bool host_file = false;  // it may have what was to go
  std::vector<UnconfirmedPurge> purges;
  std::vector<UnconfirmedRemoval> removals;
  std::vector<WrongShared> shared;

  friend bool operator==(const Unconfirmed&, const Unconfirmed&) = default;
};

class PurgeFile {
 public:
  // Makes one that says nothing where there is none. kInvalidArgument: another process has it, or
  // what lies there is none, unless `is_own`: nobody else has files there, so that it is damaged.
  // kUnsupported: of a later version; kIo.
  static Result<std::unique_ptr<PurgeFile>> open(const std::string& path, bool is_own = false);
  PurgeFile(const PurgeFile&) = delete;
  PurgeFile& operator=(const PurgeFile&) = delete;

  const std::string& path() const noexcept { return path_; }
  // What it says; nullptr: it is damaged, or which of two things it says was not made sure of.
  const Unconfirmed* said_or_null() const noexcept { return said_.has_value() ? &*said_ : nullptr; }
  // Durable when that is ok. Else it says what it said, or, where said_or_null() is nullptr, either
  // that or what is given. Nothing in a child of fork().
  Status keep(const Unconfirmed& unconfirmed);

 private:
  explicit PurgeFile(std::string path) : path_(std::move(path)) {}
  Status lock();
  Status read(bool is_own);
  std::string new_path() const { return path_ + ".new"; }
  Result<int> write_new(std::string_view bytes) const;

  std::string path_;
  FileLock lock_;  // of what has the name
  std::optional<Unconfirmed> said_;
  OwnProcess opened_in_;
};

}  // namespace stemma
