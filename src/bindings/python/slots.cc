// stemma._stemma.SlotIndex, SlotMatch and NumberList: what the adapters of other engines stand on.
#include <pybind11/stl.h>

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/python/binding.h"
#include "bindings/python/events.h"
#include "bindings/python/slot_index.h"
#include "prefix/namespace_digest.h"

namespace stemma::python {

namespace {

// A SlotIndex, and whose turn it is.
struct SlotCore {
  std::mutex mutex;
  std::unique_ptr<SlotIndex> index;
};

struct Index {
  std::unique_ptr<SlotCore> core;
};

// A namespace that is open until nobody has it.
class SlotNamespace {
 public:
  SlotNamespace(py::object index, SlotCore& core, NamespaceId id)
      : index_(std::move(index)), core_(core), id_(id) {}
  ~SlotNamespace() {
    in_turn(core_.mutex, false, [this] { core_.index->close_namespace(id_); });
  }
  SlotNamespace(const SlotNamespace&) = delete;
  SlotNamespace& operator=(const SlotNamespace&) = delete;

  std::int32_t number() const noexcept { return id_.value(); }
  NamespaceId id_in(const SlotCore& core) const {
    if (&core != &core_) refuse("namespace: it is of another SlotIndex");
    return id_;
  }

 private:
  py::object index_;  // kept alive
  SlotCore& core_;
  NamespaceId id_;
};

// Of who names none: the first that was opened.
NamespaceId id_of(const SlotCore& core, const py::object& ns_or_none) {
  return ns_or_none.is_none() ? NamespaceId(0) : ns_or_none.cast<SlotNamespace&>().id_in(core);
}

// A SlotIndex::Match that Python has.
class Match {
 public:
  Match(py::object index, SlotCore& core) : index_(std::move(index)), core_(core) {}
  ~Match() {
    in_turn(core_.mutex, false, [this] { core_.index->forget(match_); });
  }
  Match(const Match&) = delete;
  Match& operator=(const Match&) = delete;

  std::int64_t tokens() const noexcept { return match_.tokens; }
  std::int64_t locks() const noexcept { return match_.locks; }
  std::int32_t ns() const noexcept { return match_.ns.value(); }
  void lock() {
    check(in_turn(core_.mutex, false, [this] { return core_.index->lock(match_); }));
  }
  void unlock() {
    check(in_turn(core_.mutex, false, [this] { return core_.index->unlock(match_); }));
  }
  NumberList slots(std::int64_t first_token) const {
    if (first_token < 0 || first_token > match_.tokens ||
        first_token % core_.index->page_size() != 0) {
      refuse("first_token: whole pages within the match are wanted");
    }
    NumberList out;
    out.numbers.resize(static_cast<std::size_t>(match_.tokens - first_token));
    check(in_turn(core_.mutex, false,
                  [&] { return core_.index->read_slots(match_, first_token, out.numbers); }));
    return out;
  }

  NumberList text() const {
    return {value_of(in_turn(core_.mutex, false, [&] { return core_.index->read_text(match_); }))};
  }
  std::int64_t hot_tokens(std::int32_t hits) {
    return value_of(
        in_turn(core_.mutex, false, [&] { return core_.index->hot_tokens(match_, hits); }));
  }

  SlotIndex::Match& match() noexcept { return match_; }

 private:
  py::object index_;  // kept alive
  SlotCore& core_;
  SlotIndex::Match match_;
};

Index open_index(std::int64_t page_size, std::int64_t tokens_max, const std::string& eviction,
                 std::int64_t protected_hits, std::int64_t events_pages_max,
                 std::int64_t namespaces_max) {
  SlotIndexOptions options;
  options.page_size = page_size;
  options.tokens_max = tokens_max;
  options.eviction = eviction;
  options.slru_protected_hits = protected_hits;
  options.events_pages_max = events_pages_max;
  options.namespaces_max = namespaces_max;
  Index made{std::make_unique<SlotCore>()};
  made.core->index = value_of(SlotIndex::open(options));
  static_cast<void>(made.core->index->try_open_namespace({}));
  return made;
}

// A field that is absent differs from one that is empty.
std::unique_ptr<SlotNamespace> open_namespace(const py::object& self,
                                              const std::optional<std::string>& extra_key,
                                              const std::optional<std::string>& cache_salt) {
  SlotCore& core = *self.cast<Index&>().core;
  NamespaceFields fields;
  if (extra_key.has_value()) fields.add("extra_key", *extra_key);
  if (cache_salt.has_value()) fields.add("cache_salt", *cache_salt);
  const NamespaceDigest digest = fields.finish();
  const auto ns =
      in_turn(core.mutex, false, [&] { return core.index->try_open_namespace(digest); });
  if (!ns.has_value()) fail({ErrorCode::kTooLarge, "as many namespaces are open as there can be"});
  return std::make_unique<SlotNamespace>(self, core, *ns);
}

std::unique_ptr<Match> match(const py::object& self, const py::object& tokens,
                             const py::object& ns_or_none) {
  SlotCore& core = *self.cast<Index&>().core;
  const NamespaceId ns = id_of(core, ns_or_none);
  const NumberText text(tokens, "tokens");
  auto out = std::make_unique<Match>(self, core);
  in_turn(core.mutex, text.is_long(), [&] { core.index->match(ns, text.numbers(), out->match()); });
  return out;
}

std::int64_t probe(const py::object& self, const py::object& tokens, const py::object& ns_or_none) {
  SlotCore& core = *self.cast<Index&>().core;
  const NamespaceId ns = id_of(core, ns_or_none);
  const NumberText text(tokens, "tokens");
  return in_turn(core.mutex, text.is_long(), [&] { return core.index->probe(ns, text.numbers()); });
}

py::tuple insert(const py::object& self, const py::object& tokens, const py::object& slots,
                 const py::object& ns_or_none, std::int32_t priority) {
  SlotCore& core = *self.cast<Index&>().core;
  const NamespaceId ns = id_of(core, ns_or_none);
  const NumberText text(tokens, "tokens");
  const NumberText places(slots, "slots");
  if (places.size() < text.size()) refuse("slots: fewer than tokens");
  auto out = std::make_unique<Match>(self, core);
  const std::int64_t present = value_of(in_turn(core.mutex, text.is_long(), [&] {
    return core.index->insert(ns, text.numbers(), places.numbers(), priority, out->match());
  }));
  return py::make_tuple(present, std::move(out));
}

NumberList evict(Index& self, std::int64_t tokens) {
  if (tokens < 0) refuse("tokens: must be at least 0");
  NumberList out;
  in_turn(self.core->mutex, tokens > kLongCallTokens,
          [&] { self.core->index->evict(tokens, out.numbers); });
  return out;
}

py::object lock_coldest(const py::object& self) {
  SlotCore& core = *self.cast<Index&>().core;
  auto out = std::make_unique<Match>(self, core);
  const std::int64_t own_tokens =
      in_turn(core.mutex, false, [&] { return core.index->lock_coldest(out->match()); });
  if (own_tokens == 0) return py::none();
  return py::make_tuple(own_tokens, std::move(out));
}

py::list drain_events(Index& self) {
  KeptEvents kept;
  in_turn(self.core->mutex, true, [&] { self.core->index->drain_events(kept); });
  py::list out;
  for (const KeptEvent& event : kept.events) {
    out.append(py::make_tuple(event.kind_name(), event.keys_to_python(), event.parent_to_python(),
                              NumberList{event.tokens}));
  }
  return out;
}

std::pair<std::int64_t, std::int64_t> usage(Index& self) {
  const PrefixUsage usage =
      in_turn(self.core->mutex, false, [&] { return self.core->index->usage(); });
  return {usage.evictable_tokens, usage.locked_tokens};
}

void reset(Index& self) {
  check(in_turn(self.core->mutex, true, [&] { return self.core->index->reset(); }));
}

void audit(Index& self) {
  const auto contradiction =
      in_turn(self.core->mutex, true, [&] { return self.core->index->audit(); });
  if (contradiction.has_value()) fail({ErrorCode::kInternal, *contradiction});
}

// Nanoseconds that match, lock and unlock of `tokens` take in C++, on average: what bench_overhead
// compares the same calls from Python with.
double time_match(Index& self, const py::object& tokens, std::int64_t rounds) {
  const NumberText text(tokens, "tokens");
  if (rounds < 1) refuse("rounds: must be at least 1");
  return in_turn(self.core->mutex, true, [&] {
    SlotIndex& index = *self.core->index;
    const auto begin = std::chrono::steady_clock::now();
    for (std::int64_t i = 0; i < rounds; ++i) {
      SlotIndex::Match found;
      index.match(NamespaceId(0), text.numbers(), found);
      check(index.lock(found));
      check(index.unlock(found));
      index.forget(found);
    }
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - begin;
    return time.count() / static_cast<double>(rounds);
  });
}

py::buffer_info buffer_of(NumberList& list) {
  return {list.numbers.data(),
          sizeof(std::int32_t),
          py::format_descriptor<std::int32_t>::format(),
          1,
          {std::ssize(list.numbers)},
          {static_cast<py::ssize_t>(sizeof(std::int32_t))}};
}

void bind_match(py::module_& module) {
  py::class_<SlotNamespace>(module, "SlotNamespace", "Texts that may share slots.")
      .def_property_readonly("number", &SlotNamespace::number, "As SlotMatch.namespace.");
  py::class_<NumberList>(module, "NumberList", py::buffer_protocol(),
                         "int32 numbers: numpy.asarray(list) copies nothing.")
      .def_buffer(&buffer_of)
      .def("__len__", [](const NumberList& list) { return list.numbers.size(); });
  py::class_<Match>(module, "SlotMatch", "A prefix that was found. Holds nothing until locked.")
      .def_property_readonly("tokens", &Match::tokens, "Whole pages.")
      .def_property_readonly("locks", &Match::locks, "How often it is locked.")
      .def_property_readonly("namespace", &Match::ns, "The number of its namespace.")
      .def("lock", &Match::lock, "From now on it is not evicted. NotFoundError: it was before.")
      .def("unlock", &Match::unlock, "Ends one lock.")
      .def("slots", &Match::slots, py::arg("first_token") = 0,
           "Its slots from `first_token` on, a NumberList [tokens - first_token].")
      .def("text", &Match::text, "Its tokens, a NumberList [tokens].")
      .def("hot_tokens", &Match::hot_tokens, py::arg("hits"),
           "How many of its tokens, from the first one on, so many matches have covered.");
}

}  // namespace

void bind_slots(py::module_& module) {
  bind_match(module);
  py::class_<Index>(module, "SlotIndex",
                    "A prefix cache over slots that an engine hands out itself: which slots hold "
                    "the KV of which tokens.")
      .def(py::init(&open_index), py::kw_only(), py::arg("page_size") = 1,
           py::arg("tokens_max") = SlotIndexOptions().tokens_max, py::arg("eviction") = "lru",
           py::arg("protected_hits") = SlotIndexOptions().slru_protected_hits,
           py::arg("events_pages_max") = 0,
           py::arg("namespaces_max") = SlotIndexOptions().namespaces_max)
      .def("namespace", &open_namespace, py::arg("extra_key") = py::none(),
           py::arg("cache_salt") = py::none(),
           "A SlotNamespace: open as long as somebody has it, or a match in it.")
      .def(
          "lock_coldest", &lock_coldest,
          "Locks the leaf that goes next: (its own tokens, match of all down to its end), or None.")
      .def("drain_events", &drain_events,
           "What changed since the last call: (\"cleared\", \"stored\" or \"removed\", keys of "
           "pages, "
           "key of the page before them or None, tokens).")
      .def("match", &match, py::arg("tokens"), py::arg("namespace") = py::none(),
           "The longest prefix of `tokens`, int32 [tokens], in whole pages.")
      .def("probe", &probe, py::arg("tokens"), py::arg("namespace") = py::none(),
           "As match, but its length only. Changes nothing.")
      .def("insert", &insert, py::arg("tokens"), py::arg("slots"),
           py::arg("namespace") = py::none(), py::arg("priority") = 0,
           "Takes the slots of what is not there yet of the whole pages of `tokens`; (tokens that "
           "were there before, match of all).")
      .def("evict", &evict, py::arg("tokens"),
           "The slots, page by page, of the coldest pages: as many as hold `tokens`.")
      .def("usage", &usage, "(evictable tokens, locked tokens)")
      .def("slots",
           [](Index& self) {
             return NumberList{
                 in_turn(self.core->mutex, false, [&] { return self.core->index->all_slots(); })};
           })
      .def("reset", &reset, "Forgets everything. Nothing may be locked.")
      .def("audit", &audit, "Checks every invariant; raises InternalError with the first breach.")
      .def("_time_match", &time_match, py::arg("tokens"), py::arg("rounds"))
      .def_property_readonly("page_size",
                             [](const Index& self) { return self.core->index->page_size(); });
}

}  // namespace stemma::python
