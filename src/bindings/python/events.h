// KeptEvents: changes of what a cache finds, gathered in turn and handed to Python after it.
//
// Thread:     one.
// Memory:     a copy of each event.
// Cost:       that of the copies.
// Not here:   what Python makes of them (slots, tenants).
#pragma once

#include <pybind11/pybind11.h>

#include <array>
#include <optional>
#include <vector>

#include "bindings/python/binding.h"
#include "stemma/prefix_cache.h"

namespace stemma::python {

// A PrefixEvent that outlives the call that hands it over.
struct KeptEvent {
  PrefixEvent::Kind kind;
  std::vector<PageKey> keys;
  NamespaceDigest digest;
  std::optional<PageKey> parent;
  std::vector<TokenId> tokens;

  const char* kind_name() const {
    constexpr std::array kNames = {"cleared", "stored", "removed"};
    return kNames[static_cast<std::size_t>(kind)];
  }
  pybind11::list keys_to_python() const {
    pybind11::list out;
    for (const PageKey& key : keys) out.append(bytes_of(key));
    return out;
  }
  pybind11::object parent_to_python() const {
    return parent.has_value() ? pybind11::object(bytes_of(*parent)) : pybind11::none();
  }
};

class KeptEvents final : public PrefixEventSink {
 public:
  void take(const PrefixEvent& event) override {
    events.push_back({event.kind,
                      {event.keys.begin(), event.keys.end()},
                      event.digest,
                      event.parent,
                      {event.tokens.begin(), event.tokens.end()}});
  }
  std::vector<KeptEvent> events;
};

}  // namespace stemma::python
