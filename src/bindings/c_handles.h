// Handles: what the opaque types of stemma/c.h are, and how an entry of it refuses, fails and never
// throws.
//
// Thread:     as stemma/c.h says.
// Memory:     a cache has its sequences' handles in one array, made when it is opened.
// Cost:       guarded: nothing, unless something is thrown.
// Not here:   what the entries do (c_*.cc).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <vector>

#include "alloc/request_table.h"
#include "base/own_process.h"
#include "bindings/loan_book.h"
#include "stemma/c.h"
#include "stemma/kv_cache.h"
#include "stemma/kv_pool.h"
#include "stemma/lower_tiers.h"
#include "stemma/page_store.h"

struct stemma_pool {
  std::unique_ptr<stemma::KvPool> pool;
};

struct stemma_store {
  std::unique_ptr<stemma::PageStore> store;
};

struct stemma_tiers {
  const stemma_pool* pool;
  const stemma_pool* windowed_pool_or_null;
  stemma::OwnedInProcess<stemma::LowerTiers> tiers;
  bool in_use = false;  // by a cache: each hands out all of their pages
  stemma::OwnProcess opened_in = {};
};

struct stemma_sequence {
  stemma_cache* cache = nullptr;
  stemma::Sequence held;  // not valid: the handle is free
};

struct stemma_cache {
  std::unique_ptr<stemma::KvCache> kv;
  // By id of a namespace.
  struct OpenNamespace {
    std::int64_t opens = 0;                   // how often it is open
    std::vector<std::int32_t> shared_tokens;  // that all of its texts begin with
  };
  std::vector<OpenNamespace> namespaces;
  std::vector<std::int64_t> promotions;  // that are not released
  std::int64_t last_step = 0;            // begun
  std::int64_t steps_in_flight = 0;
  stemma_tiers* tiers_or_null = nullptr;
  const stemma_pool* pool_or_null = nullptr;  // above the tiers
  stemma::LoanBook loans;
  std::vector<stemma_sequence> sequences;  // after `kv`: they let go before it ends
  std::vector<stemma_sequence*> unused;
  std::optional<stemma::PageTableAssembly> batch;  // the latest page table
  // Of layers with a window (stemma/c_windows.h), where there are some.
  std::optional<stemma::PageTableAssembly> windowed_batch;
  std::vector<stemma::PageId> windowed_row;  // scratch
};

namespace stemma {

// Steps of one cache in flight, as PageAllocator bounds them.
inline constexpr std::int64_t kCStepsInFlightMax = 16;

// Keeps the line for stemma_last_error and gives the code.
inline stemma_status fail(const Error& error) {
  const auto status = static_cast<stemma_status>(-1 - static_cast<int>(error.code));
  return stemma_set_last_error(status, to_string(error).c_str());
}
inline stemma_status refuse(const char* why) {
  return fail({ErrorCode::kInvalidArgument, why});
}

// More bytes than the addresses of a process reach: no array has so many.
inline constexpr std::size_t kCArrayBytesMax = std::size_t{1} << 48;

// Whether there can be an array of so many elements, which is there unless it has none.
template <typename Element>
bool is_array(const void* elements, std::size_t count) {
  return count <= kCArrayBytesMax / sizeof(Element) && (elements != nullptr || count == 0);
}

// Whether so many rows, `stride` elements from one to the next, can be parts of an array.
inline bool are_rows(std::size_t rows, std::int64_t stride) {
  return rows <= 1 || stride <= static_cast<std::int64_t>(kCArrayBytesMax / rows);
}

inline bool has_layer(const stemma_pool* pool_or_null, std::int64_t layer) {
  return pool_or_null != nullptr && layer >= 0 && layer < pool_or_null->pool->shape().layers;
}

inline bool is_promotion(const stemma_cache* cache, std::int64_t id) {
  return cache != nullptr && std::find(cache->promotions.begin(), cache->promotions.end(), id) !=
                                 cache->promotions.end();
}

// What may not happen while pages are lent (stemma/c_loans.h).
inline bool is_lending(const stemma_cache& cache) {
  return cache.kv->arriving_or_null() != nullptr;
}
inline stemma_status refuse_loan() {
  return refuse("pages are lent: stemma_end_loans comes first");
}

inline NamespaceDigest digest_of(const std::uint8_t bytes[32]) {
  NamespaceDigest digest;
  std::copy_n(bytes, digest.bytes.size(), digest.bytes.begin());
  return digest;
}

inline NamespaceFamily family_at(const std::uint8_t* bytes) {
  NamespaceFamily family;
  std::copy_n(bytes, family.bytes.size(), family.bytes.begin());
  return family;
}

// Notes that a namespace was opened once more, and tells its name. NO_NAMESPACE where it was not.
stemma_status name_namespace(stemma_cache& cache, std::optional<NamespaceId> opened,
                             std::span<const TokenId> shared_tokens, std::int32_t& ns);

// Whether it is a prompt that the cache can look up: in an open namespace, not too long, and with
// the beginning that the namespace's texts share.
stemma_status check_prompt(const stemma_cache* cache, std::int32_t ns, const std::int32_t* tokens,
                           std::size_t count);

inline bool is_held(const stemma_sequence* sequence) {
  return sequence != nullptr && sequence->held.valid();
}

// Whether a sequence's text begins as all of its namespace do. REQUIRES: it is held.
stemma_status check_begin(const stemma_sequence& sequence, std::span<const TokenId> text);

// A handle for what has begun. REQUIRES: there is a row, so there is a handle.
stemma_sequence* take_handle(stemma_cache& cache, Sequence sequence);

// NO_ROW, NO_PAGES, or what a fork asks of the tokens that are shared.
stemma_status try_fork(const stemma_sequence* sequence, std::int64_t computed_tokens,
                       ForkedSequence& fork);

// Where the caller wants the parts of a page table.
struct CPageTable {
  const std::int32_t** indptr;
  const std::int32_t** pages;
  const std::int32_t** last_page_tokens;
};
// Whether these are sequences of the cache with room for their tokens, and places for a table.
stemma_status check_batch(const stemma_cache* cache, stemma_sequence* const* sequences,
                          const std::int64_t* tokens, std::size_t count, const CPageTable& table);
void tell(const PageTableAssembly& assembly, const CPageTable& table);

// Runs an entry. What a library throws below it is an error like others.
template <typename Entry>
stemma_status guarded(const Entry& entry) noexcept {
  try {
    return entry();
  } catch (const std::bad_alloc&) {
    return stemma_set_last_error(STEMMA_OUT_OF_MEMORY, "out_of_memory: in a call of the C ABI");
  } catch (const std::exception& error) {
    return stemma_set_last_error(STEMMA_INTERNAL, error.what());
  } catch (...) {
    return stemma_set_last_error(STEMMA_INTERNAL, "internal: something unknown was thrown");
  }
}

// More than any version of a struct has: a larger size was never set.
inline constexpr std::size_t kCStructBytesMax = 4096;

// Takes the fields that the caller's version of a struct has; the others of `known` stay.
template <typename Struct>
stemma_status read_struct(const Struct* given, Struct& known) {
  if (given == nullptr) return refuse("options are NULL");
  const std::size_t bytes = given->struct_size;
  if (bytes < sizeof(std::size_t) || bytes > kCStructBytesMax) {
    return refuse("struct_size is not set: call the init function first");
  }
  const auto* const begin = reinterpret_cast<const char*>(given);
  if (bytes > sizeof(Struct) &&
      std::any_of(begin + sizeof(Struct), begin + bytes, [](char byte) { return byte != 0; })) {
    return fail({ErrorCode::kUnsupported, "a field that this library does not know is set"});
  }
  std::memcpy(&known, given, std::min(bytes, sizeof(Struct)));
  return STEMMA_OK;
}

// The inverse: `out` has room for struct_size bytes; those beyond ours become 0.
template <typename Struct>
void write_struct(Struct known, Struct* out, std::size_t struct_size) {
  if (out == nullptr || struct_size < sizeof(std::size_t) || struct_size > kCStructBytesMax) return;
  known.struct_size = struct_size;
  std::memset(static_cast<void*>(out), 0, struct_size);
  std::memcpy(static_cast<void*>(out), &known, std::min(struct_size, sizeof(Struct)));
}

// As write_struct, of a struct whose size the caller has set.
template <typename Struct>
stemma_status fill_struct(const Struct& known, Struct* out) {
  if (out == nullptr || out->struct_size < sizeof(std::size_t) ||
      out->struct_size > kCStructBytesMax) {
    return refuse("struct_size is not set");
  }
  write_struct(known, out, out->struct_size);
  return STEMMA_OK;
}

// An enum of stemma/c.h, whose values are those of ours; false, unless 0 <= value <= last.
template <typename Enum>
bool read_enum(std::int32_t value, Enum last, Enum& out) {
  if (value < 0 || value > static_cast<std::int32_t>(last)) return false;
  out = static_cast<Enum>(value);
  return true;
}

}  // namespace stemma
