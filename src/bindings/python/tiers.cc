// stemma.Tiers: host memory and page stores below a Pool; and what a Cache over them does with
// pages on their way: Promotion, transfers, steps in flight.
#include <pybind11/stl.h>

#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/bounded_time.h"
#include "base/clock.h"
#include "bindings/python/binding.h"
#include "bindings/python/objects.h"
#include "stemma/embed.h"

namespace stemma::python {

namespace {

// How long the end waits, unless Python says: nothing interrupts it, and a server that is down
// never confirms what was purged.
constexpr std::int64_t kSettleUs = 30'000'000;

// As the page allocator bounds them.
constexpr std::int64_t kStepsInFlightMax = 16;

std::vector<std::unique_ptr<PageStore>> open_stores(const std::optional<std::string>& directory,
                                                    std::int64_t disk_bytes,
                                                    const std::optional<std::string>& remote,
                                                    const std::string& secret) {
  std::vector<std::unique_ptr<PageStore>> stores;
  if (directory.has_value()) stores.push_back(value_of(open_disk_store(*directory, disk_bytes)));
  if (remote.has_value()) stores.push_back(value_of(open_remote_store(*remote, secret)));
  return stores;
}

std::optional<NamespaceDigest> digest_of(const py::object& bytes_or_none) {
  if (bytes_or_none.is_none()) return std::nullopt;
  const auto bytes = bytes_or_none.cast<std::string>();
  NamespaceDigest digest;
  if (bytes.size() != digest.bytes.size()) refuse("digest: 32 bytes are wanted");
  std::memcpy(digest.bytes.data(), bytes.data(), bytes.size());
  return digest;
}

std::unique_ptr<Tiers> open_tiers(const py::object& pool, std::int64_t host_bytes,
                                  const std::string& host_file, const py::object& digest_or_none,
                                  const std::string& codec,
                                  const std::optional<std::string>& disk_directory,
                                  std::int64_t disk_bytes, const std::optional<std::string>& remote,
                                  const std::string& remote_secret,
                                  const py::object& windowed_pool_or_none,
                                  const std::string& purge_file) {
  KvPool& device = *pool.cast<Pool&>().pool;
  KvPool* const windowed =
      windowed_pool_or_none.is_none() ? nullptr : windowed_pool_or_none.cast<Pool&>().pool.get();
  const LowerTierOptions options = {.host_bytes = host_bytes,
                                    .host_file = host_file,
                                    .purge_file = purge_file,
                                    .digest = digest_of(digest_or_none),
                                    .codec = codec};
  check_zero_free(host_file, "host_file");
  check_zero_free(purge_file, "purge_file");
  check_zero_free(disk_directory.value_or(""), "disk_directory");
  check_zero_free(remote.value_or(""), "remote");
  auto made = std::make_unique<Tiers>();
  made->pool = pool;
  made->windowed_pool_or_none = windowed_pool_or_none;
  const OthersRun others_run;
  auto stores = open_stores(disk_directory, disk_bytes, remote, remote_secret);
  made->tiers = value_of(open_lower_tiers(options, device, std::move(stores), 1, windowed));
  return made;
}

std::unique_ptr<Promotion> promote(const py::object& self, const py::object& tokens,
                                   const py::object& ns_or_none) {
  Core& core = *self.cast<Cache&>().core;
  const NumberText text(tokens, "tokens");
  const NamespaceId ns = id_for_prompt(core, ns_or_none, text.numbers());
  const std::optional<PromotionId> id =
      in_turn(core, text.is_long(), [&] { return core.kv->try_promote(ns, text.numbers()); });
  if (!id.has_value()) return nullptr;
  return std::make_unique<Promotion>(self, core, *id);
}

bool wait_transfers(Cache& self, std::int64_t us) {
  if (us < 0) refuse("us: must be at least 0");
  Core& core = *self.core;
  return in_turn(core, true, [&] {
    check_no_loan(core);
    core.kv->poll_transfers();  // which may begin some
    if (!core.kv->transfers_underway()) return false;
    core.kv->wait_transfers(std::chrono::microseconds(bounded_us(us)));
    core.kv->poll_transfers();
    return true;
  });
}

void settle(Cache& self, std::int64_t us_max) {
  if (us_max < 0) refuse("us_max: must be at least 0");
  Core& core = *self.core;
  in_turn(core, true, [&] {
    check_no_step(core);
    check_no_loan(core);
    core.kv->settle(MonotonicClock().now_us() + bounded_us(us_max));
  });
}

std::int64_t begin_step(Cache& self) {
  Core& core = *self.core;
  return in_turn(core, false, [&] {
    if (core.steps_in_flight == kStepsInFlightMax) refuse("as many steps are in flight as can be");
    core.last_step = core.kv->begin_step();
    ++core.steps_in_flight;
    return core.last_step;
  });
}

void retire_step(Cache& self, std::int64_t step) {
  Core& core = *self.core;
  in_turn(core, false, [&] {
    if (core.steps_in_flight == 0 || step != core.last_step - core.steps_in_flight + 1) {
      refuse("step: not the oldest one in flight");
    }
    core.kv->retire_step(step);
    --core.steps_in_flight;
  });
}

// Of the CPU, or, with a stream, of what is queued there from now on.
bool wait_layer(Cache& self, std::int64_t layer, std::optional<std::uintptr_t> stream) {
  Core& core = *self.core;
  return in_turn(core, true, [&] {
    LayerGate* const arriving = core.kv->arriving_or_null();
    if (arriving == nullptr) return true;
    const Pool& pool = *core.pool_or_null;
    if (layer < 0 || layer >= pool.pool->shape().layers) {
      refuse("layer: the pool has no such layer");
    }
    if (!stream.has_value()) return arriving->wait(layer);
    if (pool.gpu_or_null == nullptr) refuse("stream: the pool is on no GPU");
    return wait_on_layer(*arriving, reinterpret_cast<void*>(*stream), layer);
  });
}

// The step has ended, and with it what was lent for it.
bool end_loans(Cache& self) {
  Core& core = *self.core;
  return in_turn(core, true, [&] {
    check_no_step(core);
    return core.loans.end(*core.kv);
  });
}

// Numbers by name, gathered in turn and handed to Python after it.
class Numbers final : public MetricVisitor {
 public:
  void counter(std::string_view name, std::int64_t value) override { gauge(name, value); }
  void gauge(std::string_view name, std::int64_t value) override {
    all_.emplace_back(std::string(name), value);
  }
  py::dict to_python() const {
    py::dict out;
    for (const auto& [name, value] : all_) out[py::str(name)] = value;
    return out;
  }

 private:
  std::vector<std::pair<std::string, std::int64_t>> all_;
};

py::dict metrics(Cache& self) {
  Numbers numbers;
  in_turn(*self.core, false, [&] { self.core->kv->visit_metrics(numbers); });
  return numbers.to_python();
}

}  // namespace

// Where the cache has pages that the pool has not, a copy would go beyond its end.
void check_fit(const KvCacheOptions& options, const Tiers& tiers) {
  const KvShape& shape = tiers.pool.cast<const Pool&>().pool->shape();
  if (shape.pages != options.pages || shape.page_size != options.page_size) {
    refuse("pages, page_size: must be those of the pool above the tiers");
  }
  if (!tiers.windowed_pool_or_none.is_none() && options.window_tokens > 0 &&
      tiers.windowed_pool_or_none.cast<const Pool&>().pool->shape().pages !=
          options.windowed_pages) {
    refuse("windowed_pages: must be those of the windowed pool above the tiers");
  }
  if (tiers.taken) refuse("tiers: another Cache has them");
  if (!tiers.opened_in.is_here()) refuse_child("tiers");
}

bool Promotion::worth_waiting() const {
  return in_turn(core_, false, [this] { return id_.valid() && core_.kv->worth_waiting(id_); });
}

void Promotion::release() {
  if (!core_.is_usable()) return;
  in_turn(core_, false, [this] {
    if (!id_.valid()) return;
    const PromotionId id = std::exchange(id_, PromotionId());
    core_.loans.release(*core_.kv, id);
  });
}

PromotionId Promotion::id_in(const Core& core) const {
  if (&core != &core_) refuse("promotion: it is of another Cache");
  if (!id_.valid()) refuse("promotion: it was released");
  return id_;
}

void check_no_loan(const Core& core) {
  if (core.kv->arriving_or_null() != nullptr) refuse("pages are lent: end_loans comes first");
}

void bind_tiers(py::module_& module) {
  py::class_<Tiers>(module, "Tiers",
                    "Host memory below a Pool, then a disk and a remote store: pages that leave "
                    "the pool stay there, and come up again byte for byte. For one Cache.")
      .def(py::init(&open_tiers), py::arg("pool"), py::kw_only(), py::arg("host_bytes"),
           py::arg("host_file") = "", py::arg("digest") = py::none(), py::arg("codec") = "plain",
           py::arg("disk_directory") = py::none(), py::arg("disk_bytes") = std::int64_t{1} << 40,
           py::arg("remote") = py::none(), py::arg("remote_secret") = "",
           py::arg("windowed_pool") = py::none(), py::arg("purge_file") = "",
           "host_bytes: at least those of a page; host_file: what host memory survives in, of the "
           "namespace with this digest; codec: \"plain\", or \"int8\", \"int4\", which are not "
           "exact; disk_directory: of one process at a time, with at most disk_bytes; remote: "
           "\"redis://host:6379\", whose values are sealed with remote_secret; windowed_pool: of "
           "layers with a window, for a Cache that has one; purge_file: what stores have not "
           "confirmed to have forgotten outlives the Cache in it.");
}

void bind_transfers(py::module_& module, py::class_<Cache>& cache) {
  py::class_<Promotion>(module, "Promotion",
                        "What brings a prompt up from lower tiers, until it is released. Made by "
                        "Cache.promote; `with` releases it at the end.")
      .def_property_readonly("worth_waiting", &Promotion::worth_waiting,
                             "Whether it is better to wait for it than to compute.")
      .def("release", &Promotion::release, "Lets go. May be repeated.")
      .def("__enter__", [](const py::object& self) { return self; })
      .def("__exit__", [](Promotion& promotion, const py::args&) { promotion.release(); });
  cache
      .def("promote", &promote, py::arg("tokens"), py::arg("namespace") = py::none(),
           "Begins to bring up what Tiers have of `tokens` beyond what begin would find: a "
           "Promotion, or None if there is nothing.")
      .def(
          "poll_transfers",
          [](Cache& self) {
            return in_turn(*self.core, false, [&] {
              check_no_loan(*self.core);
              return self.core->kv->poll_transfers();
            });
          },
          "Once between two steps: takes copies that have ended, and begins others. Whether any "
          "had. While a step is in flight, what is brought to the pool is left for later.")
      .def("wait_transfers", &wait_transfers, py::arg("us"),
           "Waits until a copy ends, so long at most; False at once if none is under way.")
      .def("wait_layer", &wait_layer, py::arg("layer"), py::arg("stream") = py::none(),
           "Before a layer is read while pages are lent: waits until all of them hold it, or lets "
           "what is queued on `stream` of a GPU wait. False: nothing computed in this step may be "
           "used. True at once where nothing is lent.")
      .def("end_loans", &end_loans,
           "The step has ended, and with it what Sequence.lend lent: whether all of it came right. "
           "If not, nothing computed in the step may be used, and each Sequence holds what is "
           "published of its text. No step is in flight.")
      .def(
          "settle", &settle, py::arg("us_max") = kSettleUs,
          "Copies down what Tiers lack, and waits for it, and for stores to confirm purges, us_max "
          "at most: before the end. A server that is down confirms none. No step is in flight.")
      .def("begin_step", &begin_step,
           "Pages that are freed from now on stay as they are until the step retires: for engines "
           "whose kernels run later. Its number.")
      .def("retire_step", &retire_step, py::arg("step"), "The oldest step in flight has ended.")
      .def("metrics", &metrics, "Every metric of cache and tiers, by Prometheus' name.");
}

}  // namespace stemma::python
