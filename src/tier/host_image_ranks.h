// HostImageRanks: what other ranks do with the files that their host memory survives in, each for
// its own heads of the pages, while rank 0 reads or writes its own.
//
// A Transfer says which pages of a text: its namespace, their places in it, keys, tokens, and where
// they are in host memory (`from`) or are to go (`to`).
//
// Thread:     as RankGroup: the engine's.                      Invariants: I8 (docs/INVARIANTS.md).
// Memory:     none here.
// Cost:       a message a call; those that return something wait for every rank's answer.
// Not here:   what rank 0 itself does (cache/host_image_pages), files (host_image_file).
#pragma once

#include <cstdint>

#include "stemma/result.h"
#include "tier/transfer.h"

namespace stemma {

class HostImageRanks {
 public:
  virtual ~HostImageRanks() = default;

  // Whether every rank has a file of these pages. If so, loads may follow until end_load; if not,
  // none has one open.
  virtual bool begin_load() = 0;
  // How many of the pages, from the first on, every rank has brought whole to where they are to go.
  virtual std::int64_t load(const Transfer& pages) = 0;
  virtual void end_load() = 0;

  // What every rank saves from now on is one file, from the moment on that end_save returns.
  virtual void begin_save() = 0;
  virtual void save(const Transfer& pages) = 0;
  // An error names the rank whose file is the old one, or none.
  virtual Status end_save() = 0;
  // In place of it: every rank keeps the file that it had before.
  virtual void drop_save() = 0;

  // That the files are gone is durable.
  virtual Status remove() = 0;
};

}  // namespace stemma
