// Embed: what an engine of one's own opens beside a KvCache: pools, lower tiers, namespaces.
//
//   open_kv_pool ─► KvPool          the engine's kernels read and write it
//   open_disk_store, open_remote_store ─► PageStore
//   open_lower_tiers(pool, stores) ─► LowerTiers ─► KvCache::open
//
// Thread:     any; what is opened says its own.
// Memory:     what is opened holds.
// Cost:       touching that memory, on `threads` threads; reading a disk store's index.
// Not here:   what a cache does (KvCache), pools on a GPU (stemma/cuda_pool.h), languages other
//             than C++ (stemma/c.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stemma/kv_pool.h"
#include "stemma/lower_tiers.h"
#include "stemma/page_store.h"
#include "stemma/result.h"

namespace stemma {

// kInvalidArgument naming the field, of threads where they are not from 1 to 1024; kOutOfMemory;
// kIo where the system has no thread left; kUnsupported for KvKind::kDoubleSparse, whose channels
// are calibrated for a model.
Result<std::unique_ptr<KvPool>> open_kv_pool(const KvShape& shape,
                                             KvLayout layout = KvLayout::kLayerFirst,
                                             int threads = 1);

// Host memory below a pool.
struct LowerTierOptions {
  // At least those of a page: what stores read and write passes through host memory.
  std::int64_t host_bytes = 0;
  KvLayout host_layout = KvLayout::kPageFirst;

  // A file that host memory survives in, from KvCache::settle to the next opening; empty: none.
  // kInvalidArgument where something else lies there, which is not written over.
  std::string host_file = {};

  // A file in which purges and removals that stores have not confirmed outlive the cache, so that
  // the next life does not find there what was to be forgotten; empty: none. One cache at a time
  // has it.
  std::string purge_file = {};

  // Whose pages `host_file` and the stores hold, for the file's label and for logs.
  std::optional<NamespaceDigest> digest = std::nullopt;

  // "plain", or "int8", "int4": pages below the device take half or a quarter of the room, and come
  // back a little different. It then belongs into the namespace.
  std::string codec = "plain";
};

// Host memory, then `stores`, nearest first. `device` must outlive it, and it the cache that uses
// it. For a cache with a window, `windowed_or_null` is the pool of the layers that have one, which
// must outlive it too; host memory is shared out as the device's is. kInvalidArgument, also where
// the pools' pages are not of as many tokens, or threads are not from 1 to 1024; kOutOfMemory; kIo.
Result<std::unique_ptr<LowerTiers>> open_lower_tiers(const LowerTierOptions& options,
                                                     KvPool& device,
                                                     std::vector<std::unique_ptr<PageStore>> stores,
                                                     int threads = 1,
                                                     KvPool* windowed_or_null = nullptr);

// The two below are of the component `tiers`.

// Pages in a directory, of at most `bytes_max` with everything that is kept beside them; those that
// lie there are found. One process at a time has it. A store that fails or hangs is left alone for
// a while. kInvalidArgument, kIo. Through io_uring, or threads where it is not allowed.
Result<std::unique_ptr<PageStore>> open_disk_store(const std::string& directory,
                                                   std::int64_t bytes_max);

// Redis or Valkey: "redis://host:6379", a cluster or sentinels. Makes no connection: a server that
// is down is a miss. Values are sealed with `secret`, unless it is empty. kInvalidArgument,
// kUnsupported: of the URL.
Result<std::unique_ptr<PageStore>> open_remote_store(const std::string& url,
                                                     const std::string& secret = {});

// One thing that makes pages valid or not: a name, and bytes that differ where pages may.
struct NamespaceField {
  std::string_view name;
  std::span<const std::byte> value;
};

// SHA-256 of the fields, framed, in their order: weights, configuration, formats, adapter, tenant,
// salt, and kArithmeticRevision where Stemma computes (docs/ARCHITECTURE.md).
NamespaceDigest namespace_digest(std::span<const NamespaceField> fields);

}  // namespace stemma
