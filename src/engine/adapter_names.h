// AdapterNames: what clients call the adapter of a namespace, for those who are told what is
// cached: routers send a request for an adapter to where its prefixes are, and know adapters by
// name.
//
// A namespace knows an adapter by the digest of what it computes: of several names of the same one,
// the last that was asked for is told.
//
// Thread:     one at a time.
// Memory:     a digest and a name for each of `namespaces_max` namespaces; of more, those noted
//             before are forgotten. What is noted again allocates nothing.
// Cost:       one look-up.
// Not here:   which adapters there are (model/adapter_book).
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "stemma/prefix_cache.h"

namespace stemma {

class AdapterNames {
 public:
  explicit AdapterNames(std::size_t namespaces_max) : namespaces_max_(namespaces_max) {}

  // Requests of this namespace are computed with that adapter.
  void note(const NamespaceDigest& digest, std::string_view name) {
    const auto known = names_.find(digest);
    if (known != names_.end()) {
      known->second = name;
      return;
    }
    if (names_.size() == namespaces_max_) names_.clear();
    names_.emplace(digest, name);
  }

  // Empty: none, or nobody knows. Good until the next note.
  std::string_view find(const NamespaceDigest& digest) const {
    const auto known = names_.find(digest);
    return known == names_.end() ? std::string_view() : known->second;
  }

 private:
  std::size_t namespaces_max_;
  std::map<NamespaceDigest, std::string> names_;
};

// Hands on what a cache tells, with the adapters' names.
class NamedEvents final : public PrefixEventSink {
 public:
  NamedEvents(const AdapterNames& names, PrefixEventSink& sink) : names_(names), sink_(sink) {}

  void take(const PrefixEvent& event) override {
    PrefixEvent named = event;
    if (event.kind == PrefixEvent::Kind::kStored) named.adapter = names_.find(event.digest);
    sink_.take(named);
  }

 private:
  const AdapterNames& names_;
  PrefixEventSink& sink_;
};

}  // namespace stemma
