// stemma.Cache, Namespace, Sequence and PageList: the KvCache.
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "base/math.h"
#include "bindings/python/binding.h"
#include "bindings/python/objects.h"

namespace stemma::python {

namespace {

// Page ids where they lie: in the row of a sequence.
struct PageList {
  py::object owner;
  std::span<const PageId> pages;
};

// A request's hold on pages: of none before it holds a sequence.
class Hold {
 public:
  Hold(py::object cache, py::object ns_or_none, Core& core)
      : cache_(std::move(cache)), namespace_(std::move(ns_or_none)), core_(core) {}
  ~Hold() { close(); }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  // Takes a sequence, if there is one, to where it stays: moving it later, out of turn, would
  // change what the cache knows of it amid a call of another thread. REQUIRES: in turn.
  bool try_hold(std::optional<Sequence> begun) {
    if (!begun.has_value()) return false;
    sequence_ = *std::move(begun);
    return true;
  }

  void close() {
    if (!core_.is_usable()) return;
    in_turn(core_, false, [this] {
      core_.loans.forget(sequence_);
      sequence_.reset();
    });
  }

  std::int64_t lend(const py::object& tokens, const Promotion& promotion) {
    const NumberText text(tokens, "tokens");
    check_begin(text.numbers());
    return in_turn(core_, text.is_long(), [&] {
      check_open();
      const PromotionId id = promotion.id_in(core_);
      return value_of(core_.loans.lend(*core_.kv, sequence_, text.numbers(), id));
    });
  }

  bool reserve(std::int64_t tokens) {
    return in_turn(core_, tokens > kLongCallTokens, [&] {
      check_open();
      if (tokens < 0) refuse("tokens: must be at least 0");
      check_length(core_, tokens);
      return core_.kv->reserve(sequence_, tokens);
    });
  }

  void commit(const py::object& computed) {
    const NumberText text(computed, "computed");
    check_begin(text.numbers());
    in_turn(core_, text.is_long(), [&] {
      check_computed(text.size());
      core_.kv->commit(sequence_, text.numbers());
    });
  }

  void finish(const py::object& computed) {
    const NumberText text(computed, "computed");
    check_begin(text.numbers());
    in_turn(core_, text.is_long(), [&] {
      check_computed(text.size());
      core_.kv->finish(std::move(sequence_), text.numbers());
    });
  }

  // nullptr: there is no row or no page for it. `forked` says what is to be copied.
  std::unique_ptr<Hold> fork(std::int64_t computed_tokens, ForkedSequence& forked) {
    auto made = std::make_unique<Hold>(cache_, namespace_, core_);
    const bool is_forked = in_turn(core_, false, [&] {
      check_fork(computed_tokens);
      auto begun = core_.kv->try_fork(sequence_, computed_tokens);
      if (!begun.has_value()) return false;
      forked = *std::move(begun);
      return made->try_hold(std::move(forked.sequence));
    });
    return is_forked ? std::move(made) : nullptr;
  }

  void advance(std::int64_t computed_tokens) {
    in_turn(core_, false, [&] {
      check_open();
      check_not_lent();
      if (computed_tokens < 0 || computed_tokens > sequence_.capacity_tokens()) {
        refuse("computed_tokens: more than the sequence has room for");
      }
      core_.kv->advance(sequence_, computed_tokens);
    });
  }

  NumberList windowed_pages(std::int64_t first_token) const {
    if (first_token < 0) refuse("first_token: must be at least 0");
    std::vector<PageId> pages;
    in_turn(core_, false, [&] {
      check_open();
      if (core_.kv->options().window_tokens == 0) refuse("the Cache has no window_tokens");
      pages.resize(sequence_.pages().size());
      core_.kv->copy_windowed(sequence_, first_token, pages);
    });
    const auto ids = raw(pages);
    return {{ids.begin(), ids.end()}};
  }

  // Has `change` change the sequence, in turn.
  template <typename Change>
  void set(Change&& change) {
    in_turn(core_, false, [&] {
      check_open();
      change(sequence_);
    });
  }

  // What `question` answers of the sequence, in turn.
  template <typename Question>
  auto ask(Question&& question) const {
    return in_turn(core_, false, [&] {
      check_open();
      return question(sequence_);
    });
  }
  bool valid() const {
    return in_turn(core_, false, [this] { return sequence_.valid(); });
  }

 private:
  // Refuses a text that begins as none of its namespace. Not in turn: it asks Python.
  void check_begin(std::span<const TokenId> text) const {
    static_cast<void>(id_of(core_, namespace_, text));
  }
  void check_open() const {
    if (!sequence_.valid()) refuse("the sequence holds nothing any more");
  }
  void check_not_lent() const {
    if (sequence_.on_loan()) refuse("it names pages on loan: Cache.end_loans comes first");
  }
  void check_computed(std::int64_t tokens) const {
    check_open();
    check_not_lent();
    if (tokens > sequence_.capacity_tokens()) {
      refuse("computed: " + std::to_string(tokens) + " tokens, and reserve made room for " +
             std::to_string(sequence_.capacity_tokens()));
    }
  }

  void check_fork(std::int64_t computed_tokens) const {
    check_open();
    check_not_lent();
    check_no_step(core_);
    if (!core_.kv->shares()) fail({ErrorCode::kUnsupported, "the cache \"none\" shares no pages"});
    const std::int64_t context_max = core_.kv->options().context_tokens_max;
    const std::int64_t tokens_max = std::min(sequence_.capacity_tokens(), context_max);
    const bool has_room = 0 <= computed_tokens && computed_tokens <= tokens_max;
    if (!has_room) refuse("computed_tokens: more than the sequence has room for");
    if (sequence_.publishes() &&
        sequence_.published_tokens() != round_down(computed_tokens, core_.kv->page_size())) {
      refuse("computed_tokens: their full pages are to be committed first");
    }
  }

  py::object cache_;      // kept alive
  py::object namespace_;  // kept open
  Core& core_;
  Sequence sequence_;
};

// Which reads the file of host memory, if there is one.
std::unique_ptr<KvCache> open_kv(const KvCacheOptions& options, LowerTiers* lower_or_null) {
  const OthersRun others_run;
  return value_of(KvCache::open(options, nullptr, lower_or_null));
}

Cache open_over(const KvCacheOptions& options, const py::object& tiers_or_none) {
  Cache made{std::make_unique<Core>()};
  if (tiers_or_none.is_none()) {
    made.core->kv = open_kv(options, nullptr);
  } else {
    auto& tiers = tiers_or_none.cast<Tiers&>();
    check_fit(options, tiers);
    struct Claim {  // others that run meanwhile may ask for them
      bool& taken;
      bool is_kept = false;
      ~Claim() { taken = is_kept; }
    } claim{tiers.taken};
    tiers.taken = true;
    made.core->kv = open_kv(options, tiers.tiers.get());
    claim.is_kept = true;
    made.core->tiers_or_none = tiers_or_none;
    made.core->pool_or_null = &tiers.pool.cast<const Pool&>();
  }
  made.core->plain = *made.core->kv->try_open_namespace({});
  return made;
}

Cache open_cache(std::int64_t pages, std::int64_t page_size, std::int64_t requests_max,
                 std::int64_t context_tokens_max, const std::string& cache,
                 const std::string& eviction, const py::object& tiers_or_none,
                 const std::string& write_policy, const std::string& host_eviction,
                 std::int64_t load_wait_us, std::int64_t events_pages_max,
                 std::int64_t window_tokens, std::int64_t windowed_pages) {
  KvCacheOptions options;
  options.pages = pages;
  options.page_size = page_size;
  options.requests_max = requests_max;
  options.context_tokens_max = context_tokens_max;
  options.cache = cache;
  options.eviction = eviction;
  options.tiers.write_policy = value_of(parse_write_policy(write_policy));
  options.tiers.host_eviction = host_eviction;
  options.tiers.load_wait_us = load_wait_us;
  options.events_pages_max = events_pages_max;
  options.window_tokens = window_tokens;
  options.windowed_pages = windowed_pages;
  return open_over(options, tiers_or_none);
}

std::unique_ptr<Namespace> open_namespace(const py::object& self, const py::kwargs& fields) {
  Core& core = *self.cast<Cache&>().core;
  const NamespaceDigest digest = digest_of(fields);
  const std::optional<NamespaceId> id =
      in_turn(core, false, [&] { return core.kv->try_open_namespace(digest); });
  if (!id.has_value()) fail({ErrorCode::kTooLarge, "as many namespaces are open as there can be"});
  return std::make_unique<Namespace>(self, core, *id, digest);
}

std::unique_ptr<Hold> begin(const py::object& self, const py::object& tokens,
                            const py::object& ns_or_none) {
  Core& core = *self.cast<Cache&>().core;
  const NumberText text(tokens, "tokens");
  const NamespaceId ns = id_for_prompt(core, ns_or_none, text.numbers());
  auto made = std::make_unique<Hold>(self, ns_or_none, core);
  const bool has_begun = in_turn(
      core, text.is_long(), [&] { return made->try_hold(core.kv->begin(ns, text.numbers())); });
  return has_begun ? std::move(made) : nullptr;
}

std::int64_t probe(const py::object& self, const py::object& tokens, const py::object& ns_or_none) {
  Core& core = *self.cast<Cache&>().core;
  const NumberText text(tokens, "tokens");
  const NamespaceId ns = id_for_prompt(core, ns_or_none, text.numbers());
  return in_turn(core, text.is_long(), [&] { return core.kv->probe(ns, text.numbers()); });
}

std::int64_t evict(Cache& self, std::int64_t pages) {
  if (pages < 0) refuse("pages: must be at least 0");
  return in_turn(*self.core, true, [&] {
    check_no_step(*self.core);
    return self.core->kv->evict(pages);
  });
}

void reset(Cache& self) {
  in_turn(*self.core, true, [&] {
    if (self.core->kv->free_rows() != self.core->kv->options().requests_max) {
      refuse("reset: a Sequence still holds pages");
    }
    check_no_step(*self.core);
    check_no_loan(*self.core);
    self.core->kv->reset();
  });
}

using Stats = std::array<std::pair<const char*, std::int64_t>, 10>;

Stats stats_of(const KvCache& kv) {
  const PrefixUsage usage = kv.usage();
  return {{{"page_size", kv.page_size()},
           {"total_pages", kv.total_pages()},
           {"free_pages", kv.free_pages()},
           {"available_pages", kv.available_pages()},
           {"evicted_pages", kv.evicted_pages()},
           {"cached_tokens", usage.total_tokens()},
           {"evictable_tokens", usage.evictable_tokens},
           {"locked_tokens", usage.locked_tokens},
           {"free_rows", kv.free_rows()},
           {"epoch", static_cast<std::int64_t>(kv.epoch())}}};
}

py::dict stats(Cache& self) {
  const Stats numbers = in_turn(*self.core, false, [&] { return stats_of(*self.core->kv); });
  py::dict out;
  for (const auto& [name, value] : numbers) out[name] = value;
  return out;
}

void audit(Cache& self) {
  const std::optional<std::string> contradiction = in_turn(*self.core, true, [&] {
    check_no_loan(*self.core);  // of a step, which the audit looks behind
    return self.core->kv->audit();
  });
  if (contradiction.has_value()) fail({ErrorCode::kInternal, *contradiction});
}

py::object tail_of(PageId from, PageId to) {
  if (!from.valid()) return py::none();
  return py::make_tuple(from.value(), to.value());
}

// (the fork, what to copy in the pool, and in that of layers with a window), or None.
py::object fork(Hold& self, std::int64_t computed_tokens) {
  ForkedSequence forked;
  std::unique_ptr<Hold> hold = self.fork(computed_tokens, forked);
  if (hold == nullptr) return py::none();
  return py::make_tuple(std::move(hold), tail_of(forked.tail_from, forked.tail_to),
                        tail_of(forked.windowed_from, forked.windowed_to));
}

void set_retention(Hold& self, const std::string& name) {
  constexpr std::array kNames = {"short", "default", "long"};  // as Retention
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) refuse("retention: \"short\", \"default\" or \"long\" is wanted");
  self.set([&](Sequence& sequence) {
    sequence.set_retention(static_cast<Retention>(found - kNames.begin()));
  });
}

PageList pages_of(const py::object& self) {
  const std::span<const PageId> pages =
      self.cast<Hold&>().ask([](const Sequence& sequence) { return sequence.pages(); });
  return {self, pages};
}

std::int32_t page_at(const PageList& list, std::int64_t at) {
  const auto pages = std::ssize(list.pages);
  if (at < 0) at += pages;
  if (at < 0 || at >= pages) throw py::index_error("page list index out of range");
  return list.pages[static_cast<std::size_t>(at)].value();
}

py::buffer_info buffer_of(const PageList& list) {
  return {const_cast<std::int32_t*>(raw(list.pages).data()),
          sizeof(std::int32_t),
          py::format_descriptor<std::int32_t>::format(),
          1,
          {std::ssize(list.pages)},
          {static_cast<py::ssize_t>(sizeof(std::int32_t))},
          /*readonly=*/true};
}

void bind_page_list(py::module_& module) {
  py::class_<PageList>(module, "PageList", py::buffer_protocol(),
                       "Page ids of a Sequence, int32 [pages], where they lie: numpy.asarray(list) "
                       "copies nothing.\n\nGood until the next reserve or commit of the sequence.")
      .def_buffer(&buffer_of)
      .def("__len__", [](const PageList& list) { return list.pages.size(); })
      .def("__getitem__", &page_at, py::arg("index"))
      .def(
          "tolist",
          [](const PageList& list) {
            const auto ids = raw(list.pages);
            return std::vector<std::int32_t>(ids.begin(), ids.end());
          },
          "A copy, as Python's whole numbers.");
}

void bind_sequence(py::module_& module) {
  const auto property = [](auto question) {
    return [question](const Hold& hold) { return hold.ask(question); };
  };
  py::class_<Hold>(
      module, "Sequence",
      "One request's hold on pages: a locked prefix that is shared, then a tail of its "
      "own.\n\nMade by Cache.begin. Without finish, or after it, close gives all back; "
      "`with` does so at the end.")
      .def("reserve", &Hold::reserve, py::arg("tokens"),
           "Makes room for positions 0 ... tokens-1, evicting exactly what is missing.\n\n"
           "All or nothing: False, and nothing changed, if there are too few pages even so.")
      .def("lend", &Hold::lend, py::arg("tokens"), py::arg("promotion"),
           "Names pages of `tokens`, its whole prompt, that a Promotion is still copying up from "
           "host memory, right behind what begin found, until Cache.end_loans: Cache.wait_layer "
           "says when a layer of them may be read. Returns the tokens that the sequence then has "
           "pages of; no more than before if there is nothing to lend.")
      .def("commit", &Hold::commit, py::arg("computed"),
           "Publishes the full pages of `computed`, int32 [tokens]: every token of the sequence "
           "whose KV is in its pages now, from the first on.\n\nWhere others published the same "
           "before, their pages are shared and `pages` names them from now on.")
      .def("finish", &Hold::finish, py::arg("computed"),
           "As commit, then gives everything back. `computed` is int32 [tokens].")
      .def("fork", &fork, py::arg("computed_tokens"),
           "(A second Sequence with the first computed_tokens of this one, whose full pages are "
           "committed and then shared; (from, to) where they end amid a page: copy page `from` to "
           "`to` before either goes on; the same of windowed pages), each None where nothing is to "
           "be copied. None if there is no row or page.")
      .def("advance", &Hold::advance, py::arg("computed_tokens"),
           "All tokens before have KV: lets go windowed pages that later ones do not look back to.")
      .def("windowed_pages", &Hold::windowed_pages, py::arg("first_token"),
           "The windowed pages in the places of `pages`: -1 where `first_token`, and later ones, "
           "look back no more.")
      .def(
          "set_priority",
          [](Hold& self, std::int32_t priority) {
            self.set([priority](Sequence& sequence) { sequence.set_priority(priority); });
          },
          py::arg("priority"), "Highest stays longest, under the eviction \"priority\".")
      .def("set_retention", &set_retention, py::arg("retention"),
           "How long its client expects to come back: \"short\", \"default\" or \"long\". Eviction "
           "policies that learn weigh it.")
      .def(
          "close_session",
          [](Hold& self) { self.set([](Sequence& sequence) { sequence.close_session(); }); },
          "Its client will not come back to it, as set_retention.")
      .def("close", &Hold::close, "Gives everything back and publishes nothing. May be repeated.")
      .def("__enter__", [](const py::object& self) { return self; })
      .def("__exit__", [](Hold& hold, const py::args&) { hold.close(); })
      .def_property_readonly("valid", &Hold::valid, "Whether it holds a row of the cache.")
      .def_property_readonly("pages", &pages_of, "The pages of all tokens so far, a PageList.")
      .def_property_readonly("cached_tokens",
                             property([](const Sequence& s) { return s.cached_tokens(); }),
                             "Tokens that begin found: they need not be computed. Whole pages.")
      .def_property_readonly("published_tokens",
                             property([](const Sequence& s) { return s.published_tokens(); }),
                             "Tokens in pages that others can find.")
      .def_property_readonly("capacity_tokens",
                             property([](const Sequence& s) { return s.capacity_tokens(); }),
                             "Tokens that the pages held have room for.");
}

}  // namespace

void check_no_step(const Core& core) {
  if (core.steps_in_flight > 0) refuse("a step is in flight");
}

void bind_cache(py::module_& module) {
  py::class_<Namespace>(
      module, "Namespace",
      "Texts that may share pages: prefixes of different namespaces never meet.\n\n"
      "Open as long as somebody has it.")
      .def_property_readonly(
          "digest", [](const Namespace& ns) { return bytes_of(ns.digest()); },
          "SHA-256 of its fields, 32 bytes.");
  bind_page_list(module);
  bind_sequence(module);
  py::class_<Cache> cache(
      module, "Cache",
      "Which token prefixes have KV pages: a radix tree over pages of `page_size` tokens.\n\n"
      "It hands out page ids, 0 ... pages-1; the bytes of keys and values are yours, or a Pool's. "
      "Any thread may call it; calls take turns.");
  cache
      .def(py::init(&open_cache), py::kw_only(), py::arg("pages"), py::arg("page_size") = 16,
           py::arg("requests_max") = 16, py::arg("context_tokens_max") = 4096,
           py::arg("cache") = "radix", py::arg("eviction") = "lru", py::arg("tiers") = py::none(),
           py::arg("write_policy") = "write-back", py::arg("host_eviction") = "lru",
           py::arg("load_wait_us") = 40'000, py::arg("events_pages_max") = 0,
           py::arg("window_tokens") = 0, py::arg("windowed_pages") = 0,
           "pages: of KV in all; page_size: tokens a page; requests_max: sequences at a time; "
           "context_tokens_max: of one sequence; cache: \"radix\" or \"none\"; eviction: \"lru\", "
           "\"lfu\", \"fifo\", \"mru\", \"filo\", \"slru\", \"priority\", \"gdsf\", \"tlru\", "
           "\"s3fifo\", \"hazard\". With Tiers: write_policy, when pages go down, "
           "\"write-through\", \"write-through-selective\" (those used twice) or \"write-back\"; "
           "host_eviction, as eviction; load_wait_us: how long waiting for pages is worth it. "
           "events_pages_max: pages of changes that are kept for drain_events. Where some layers "
           "look back over window_tokens only: windowed_pages of a pool of their own.")
      .def("namespace", &open_namespace,
           "The namespace of these fields (str, int or bytes), say model=..., tenant=....: a "
           "tenant's have a quota together (set_quota), and are purged together.")
      .def("begin", &begin, py::arg("tokens"), py::arg("namespace") = py::none(),
           "Looks `tokens`, int32 [tokens], up and holds what is cached of all but the last: a "
           "Sequence, or None if requests_max are held.")
      .def("probe", &probe, py::arg("tokens"), py::arg("namespace") = py::none(),
           "Tokens that begin would find now. Changes nothing, not even recency.")
      .def("evict", &evict, py::arg("pages"),
           "Frees so many cached pages, the coldest first, or all that nobody holds; how many.")
      .def("reset", &reset, "Forgets every published page. No Sequence may hold anything.")
      .def("stats", &stats, "Pages, tokens and rows now, by name.")
      .def("audit", &audit,
           "Checks every invariant; raises InternalError with the first breach. Not while pages "
           "are lent.");
  bind_transfers(module, cache);
  bind_tenants(cache);
}

}  // namespace stemma::python
