// Objects that several parts of the module know: a Pool, the Tiers below it, what is behind a
// Cache, and a Promotion.
//
// Thread:     as binding.h; of a Cache one at a time (Core::mutex).
// Memory:     what they hold. Each keeps alive what it stands on: a Cache its Tiers, these a Pool.
// Cost:       none of its own.
// Not here:   what Python calls (pools, tiers, cache).
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "base/own_process.h"
#include "bindings/loan_book.h"
#include "bindings/python/binding.h"
#include "stemma/cuda_pool.h"
#include "stemma/kv_cache.h"
#include "stemma/kv_pool.h"
#include "stemma/lower_tiers.h"

namespace stemma::python {

namespace py = pybind11;

struct Pool {
  std::unique_ptr<KvPool> pool;
  CudaKvPool* gpu_or_null = nullptr;  // the same, if it is on one
};

struct Tiers {
  py::object pool;  // kept alive, as the next one
  py::object windowed_pool_or_none = py::none();
  OwnedInProcess<LowerTiers> tiers;
  bool taken = false;  // by a Cache
  OwnProcess opened_in = {};
};

// The KvCache behind a Cache, and whose turn it is.
struct Core {
  Core() = default;
  ~Core() {
    if (kv == nullptr) return;  // it was not opened
    if (!is_usable()) {
      static_cast<void>(kv.release());
      return;
    }
    while (steps_in_flight > 0) kv->retire_step(last_step - --steps_in_flight);
    loans.close(*kv);
    const OthersRun others_run;
    kv.reset();  // which waits for what is under way to stores
  }
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  // Over tiers only in the process that has their threads; in a child of it all is left as it is.
  bool is_usable() const noexcept { return tiers_or_none.is_none() || opened_in.is_here(); }

  OwnProcess opened_in;
  std::mutex mutex;
  py::object tiers_or_none = py::none();  // kept alive, beyond `kv`
  std::unique_ptr<KvCache> kv;
  NamespaceId plain;                   // of who names none
  const Pool* pool_or_null = nullptr;  // above the tiers
  std::int64_t last_step = 0;          // begun
  std::int64_t steps_in_flight = 0;

  LoanBook loans;
};

struct Cache {
  std::unique_ptr<Core> core;
};

// As in_turn of binding.h. Refused where the cache is not usable.
template <typename Work>
auto in_turn(Core& core, bool is_long, Work&& work) {
  if (!core.is_usable()) refuse_child("tiers");
  const InChild in_child = core.tiers_or_none.is_none() ? InChild::kIsUsed : InChild::kIsNot;
  return in_turn(core.mutex, is_long, std::forward<Work>(work), in_child);
}

// A request's hold on what brings its prompt up.
class Promotion {
 public:
  Promotion(py::object cache, Core& core, PromotionId id)
      : cache_(std::move(cache)), core_(core), id_(id) {}
  ~Promotion() { release(); }
  Promotion(const Promotion&) = delete;
  Promotion& operator=(const Promotion&) = delete;

  bool worth_waiting() const;
  void release();  // may be repeated
  // Refuses one that was released, or of another Cache. REQUIRES: in turn.
  PromotionId id_in(const Core& core) const;

 private:
  py::object cache_;  // kept alive
  Core& core_;
  PromotionId id_;  // invalid: released
};

// A namespace that is open until nobody has it.
class Namespace {
 public:
  // `shared_tokens`: what all of its texts begin with.
  Namespace(py::object cache, Core& core, NamespaceId id, const NamespaceDigest& digest,
            std::span<const TokenId> shared_tokens = {});
  ~Namespace();
  Namespace(const Namespace&) = delete;
  Namespace& operator=(const Namespace&) = delete;

  // Both refuse a Cache that is not its own; id_in a text, too, that begins as none of its texts.
  NamespaceId id_in(const Core& core, std::span<const TokenId> text) const;
  const NamespaceDigest& digest_in(const Core& core) const;
  const NamespaceDigest& digest() const noexcept { return digest_; }
  // Whether its texts go on from what another namespace has.
  bool is_behind() const noexcept { return !shared_tokens_.empty(); }

 private:
  py::object cache_;  // kept alive
  Core& core_;
  NamespaceId id_;
  NamespaceDigest digest_;
  std::vector<TokenId> shared_tokens_;
};

// The namespace of an argument of Python's, for a text: see Namespace.
NamespaceId id_of(const Core& core, const py::object& ns_or_none, std::span<const TokenId> text);
// The same for a prompt, which is refused where no Sequence can begin with it.
NamespaceId id_for_prompt(const Core& core, const py::object& ns_or_none,
                          std::span<const TokenId> prompt);
// Refuses more tokens than a Sequence of the cache may have.
void check_length(const Core& core, std::int64_t tokens);

// The digest of fields: texts, numbers and bytes, in the order of their names. Of one family are
// those with the same "tenant".
NamespaceDigest digest_of(const py::dict& fields);

// Adds to the class what tenants are sure of, who waits, and events.
void bind_tenants(py::class_<Cache>& cache);

// Adds to the class what moves pages between tiers, and Promotion to the module.
void bind_transfers(py::module_& module, py::class_<Cache>& cache);

// Refuses tiers that another Cache has, or that are below other pools than a Cache with these
// options has pages of.
void check_fit(const KvCacheOptions& options, const Tiers& tiers);

// Refuses what may not happen while a step is in flight, or while pages are lent.
// REQUIRES: in turn.
void check_no_step(const Core& core);
void check_no_loan(const Core& core);

}  // namespace stemma::python
