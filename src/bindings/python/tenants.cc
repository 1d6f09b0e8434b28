// stemma.Namespace, and what a Cache of many tenants says: quotas, purges, who waits, beginnings
// that all share, and events for who follows it.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "bindings/python/binding.h"
#include "bindings/python/events.h"
#include "bindings/python/objects.h"
#include "bindings/shared_begin.h"

namespace stemma::python {

namespace {

std::unique_ptr<Namespace> open_behind(const py::object& self, const Namespace& shared,
                                       const py::object& tokens, const py::kwargs& fields) {
  Core& core = *self.cast<Cache&>().core;
  const NumberText text(tokens, "tokens");
  const std::int64_t page_size = core.kv->page_size();
  if (text.size() == 0 || text.size() % page_size != 0) {
    refuse("tokens: whole pages are wanted, at least one");
  }
  check_length(core, text.size());
  if (shared.is_behind()) refuse("shared: its texts go on from another Namespace's themselves");
  const SharedPrefix prefix = {.digest = shared.digest_in(core), .tokens = text.size()};
  const NamespaceDigest own = digest_of(fields);
  const NamespaceDigest digest = beside_others(
      text.is_long(), [&] { return grafted_on(own, prefix.digest, text.numbers(), page_size); });
  const auto id =
      in_turn(core, false, [&] { return core.kv->try_open_namespace(digest, &prefix); });
  if (!id.has_value()) fail({ErrorCode::kTooLarge, "as many namespaces are open as there can be"});
  return std::make_unique<Namespace>(self, core, *id, digest, text.numbers());
}

// A value of Python's of the three kinds that a field can have; `label` names it where it has none.
void add_value(NamespaceFields& fields, std::string_view name, const py::handle& value,
               const std::string& label) {
  if (py::isinstance<py::bytes>(value)) {
    const auto bytes = value.cast<std::string>();
    fields.add(name, std::as_bytes(std::span(bytes)));
  } else if (py::isinstance<py::str>(value)) {
    fields.add(name, std::string_view(value_as<std::string>(value, label)));
  } else if (py::isinstance<py::int_>(value)) {
    fields.add(name, value_as<std::int64_t>(value, label));
  } else {
    refuse(label + ": a text, a whole number or bytes are wanted");
  }
}

// Of a text as stemma::family_of_tenant has it; 7, "7" and b"7" are three tenants.
NamespaceFamily family_of_name(const py::handle& tenant) {
  NamespaceFields fields;
  add_value(fields, kTenantFamilyField, tenant, "tenant");
  return family_of(fields.finish());
}

// The family of a tenant by its name, or of a Namespace.
NamespaceFamily family_in(const Core& core, const py::handle& tenant) {
  if (!py::isinstance<Namespace>(tenant)) return family_of_name(tenant);
  return family_of(tenant.cast<const Namespace&>().digest_in(core));
}

void set_quota(Cache& self, const py::object& tenant, std::int64_t pages) {
  Core& core = *self.core;
  const NamespaceFamily family = family_in(core, tenant);
  if (pages < 0 || pages > core.kv->total_pages()) refuse("pages: of the Cache's, at least 0");
  in_turn(core, true, [&] { core.kv->set_quota(family, pages); });
}

// (pages it is sure of, pages it has) of a tenant; None: it has no quota.
py::object quota(Cache& self, const py::object& tenant) {
  Core& core = *self.core;
  const NamespaceFamily family = family_in(core, tenant);
  const auto quotas = in_turn(core, false, [&] { return core.kv->quotas(Tier::kDevice); });
  const auto found = std::find_if(quotas.begin(), quotas.end(),
                                  [&](const TenantQuota& one) { return one.family == family; });
  if (found == quotas.end()) return py::none();
  return py::make_tuple(found->quota_pages, found->pages);
}

void purge(Cache& self, const py::args& tenants) {
  Core& core = *self.core;
  std::vector<NamespaceFamily> families;
  for (const py::handle tenant : tenants) families.push_back(family_in(core, tenant));
  in_turn(core, true, [&] {
    check_no_step(core);
    check_no_loan(core);
    value_of(core.kv->purge(families));
  });
}

void want(Cache& self, const py::object& tokens, const py::object& ns_or_none, std::int64_t turn) {
  Core& core = *self.core;
  const NumberText text(tokens, "tokens");
  const NamespaceId ns = id_for_prompt(core, ns_or_none, text.numbers());
  in_turn(core, text.is_long(), [&] { core.kv->want(ns, text.numbers(), turn); });
}

py::list drain_events(Cache& self) {
  KeptEvents kept;
  in_turn(*self.core, true, [&] { self.core->kv->drain_events(kept); });
  py::list out;
  for (const KeptEvent& event : kept.events) {
    py::dict told;
    told["kind"] = event.kind_name();
    told["keys"] = event.keys_to_python();
    if (event.kind == PrefixEvent::Kind::kStored) {
      told["parent"] = event.parent_to_python();
      told["tokens"] = NumberList{event.tokens};
      told["namespace"] = bytes_of(event.digest);
    }
    out.append(told);
  }
  return out;
}

}  // namespace

Namespace::Namespace(py::object cache, Core& core, NamespaceId id, const NamespaceDigest& digest,
                     std::span<const TokenId> shared_tokens)
    : cache_(std::move(cache)),
      core_(core),
      id_(id),
      digest_(digest),
      shared_tokens_(shared_tokens.begin(), shared_tokens.end()) {}

Namespace::~Namespace() {
  if (!core_.is_usable()) return;
  in_turn(core_, false, [this] { core_.kv->close_namespace(id_); });
}

NamespaceId Namespace::id_in(const Core& core, std::span<const TokenId> text) const {
  if (&core != &core_) refuse("namespace: it is of another Cache");
  if (!begin_alike(shared_tokens_, text)) {
    refuse("tokens: they do not begin as the texts of their namespace do");
  }
  return id_;
}

const NamespaceDigest& Namespace::digest_in(const Core& core) const {
  if (&core != &core_) refuse("namespace: it is of another Cache");
  return digest_;
}

NamespaceId id_of(const Core& core, const py::object& ns_or_none, std::span<const TokenId> text) {
  return ns_or_none.is_none() ? core.plain : ns_or_none.cast<Namespace&>().id_in(core, text);
}

NamespaceId id_for_prompt(const Core& core, const py::object& ns_or_none,
                          std::span<const TokenId> prompt) {
  const NamespaceId ns = id_of(core, ns_or_none, prompt);
  if (prompt.empty()) refuse("tokens: a prompt has at least one token");
  check_length(core, std::ssize(prompt));
  return ns;
}

void check_length(const Core& core, std::int64_t tokens) {
  if (tokens > core.kv->options().context_tokens_max) {
    fail({ErrorCode::kTooLarge, "tokens: more than context_tokens_max"});
  }
}

NamespaceDigest digest_of(const py::dict& fields) {
  NamespaceFields digest;
  std::optional<NamespaceFamily> family;
  const auto names = py::reinterpret_steal<py::list>(PySequence_List(fields.ptr()));
  names.attr("sort")();
  for (const py::handle name : names) {
    const auto label = name.cast<std::string>();
    const py::object value = fields[name];
    add_value(digest, label, value, label);
    if (label == "tenant") family = family_of_name(value);
  }
  const NamespaceDigest made = digest.finish();
  return family.has_value() ? in_family(made, *family) : made;
}

void bind_tenants(py::class_<Cache>& cache) {
  cache
      .def("namespace_behind", &open_behind, py::arg("shared"), py::arg("tokens"),
           "The namespace of texts that begin with `tokens`, whole pages, which are cached in the "
           "Namespace `shared`, for all who share it; what follows them is cached for these fields "
           "alone. Elsewhere its texts are given whole.")
      .def("set_quota", &set_quota, py::arg("tenant"), py::arg("pages"),
           "Of its cached pages a tenant, by name or Namespace, loses none while they are no more "
           "than `pages` and eviction finds others. 0: it is sure of none.")
      .def("quota", &quota, py::arg("tenant"),
           "(pages that the tenant is sure of, pages that it has), or None.")
      .def("purge", &purge,
           "From now on nobody finds pages of these tenants, by name or Namespace, in any tier; of "
           "none named, anybody's. No step is in flight.")
      .def("want", &want, py::arg("tokens"), py::arg("namespace") = py::none(), py::arg("turn") = 0,
           "A request waits that will begin with these tokens: what begin would find of them now "
           "is evicted last, the highest turn first. Until forget_wants.")
      .def(
          "forget_wants",
          [](Cache& self) { in_turn(*self.core, true, [&] { self.core->kv->forget_wants(); }); },
          "Nobody waits any more.")
      .def(
          "drain_events", &drain_events,
          "What changed since the last call, or after a loss everything: dicts with kind "
          "(\"cleared\", \"stored\" or \"removed\") and keys of pages; of what was stored, parent, "
          "the key of the page before them or None, tokens, and the digest of the namespace.")
      .def(
          "resend_events",
          [](Cache& self) { in_turn(*self.core, false, [&] { self.core->kv->resend_events(); }); },
          "The next drain_events tells everything: for who follows from now on.");
}

}  // namespace stemma::python
