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
#include <utility>

#include "bindings/loan_book.h"
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
  py::object pool;  // kept alive
  std::unique_ptr<LowerTiers> tiers;
  bool taken = false;  // by a Cache
};

// The KvCache behind a Cache, and whose turn it is.
struct Core {
  Core() = default;
  ~Core() {
    if (kv == nullptr) return;  // it was not opened
    while (steps_in_flight > 0) kv->retire_step(last_step - --steps_in_flight);
    loans.close(*kv);
  }
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

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

// The namespace of an argument of Python's; refuses one of another Cache.
NamespaceId id_of(const Core& core, const py::object& ns_or_none);

// Adds to the class what moves pages between tiers, and Promotion to the module.
void bind_transfers(py::module_& module, py::class_<Cache>& cache);

// Refuses what may not happen while a step is in flight, or while pages are lent.
// REQUIRES: in turn.
void check_no_step(const Core& core);
void check_no_loan(const Core& core);

}  // namespace stemma::python
