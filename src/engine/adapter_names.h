// AdapterNames: what clients call the adapter of a namespace, for those who are told what is
// cached: routers send a request for an adapter to where its prefixes are, and know adapters by
// name.
//
// A namespace knows an adapter by the digest of what it computes: of several names of the same one,
// the last that was asked for is told.
//
// Thread:     one at a time.
// Memory:     a digest and a name for each of `namespaces_max` namespaces; of more, the one noted
//             longest ago is forgotten, as a cache forgets its namespaces. What is noted again
//             allocates nothing.
// Cost:       one look-up.
// Not here:   which adapters there are (model/adapter_book).
#pragma once

#include <cstddef>
#include <iterator>
#include <list>
#include <map>
#include <string>
#include <string_view>

#include "base/check.h"
#include "stemma/prefix_cache.h"

namespace stemma {

class AdapterNames {
 public:
  // REQUIRES: namespaces_max > 0.
  explicit AdapterNames(std::size_t namespaces_max) : namespaces_max_(namespaces_max) {
    STEMMA_CHECK(namespaces_max > 0, "the last one noted is known");
  }

  AdapterNames(const AdapterNames&) = delete;
  AdapterNames& operator=(const AdapterNames&) = delete;

  // Requests of this namespace are computed with that adapter.
  void note(const NamespaceDigest& digest, std::string_view name) {
    const auto known = names_.find(digest);
    if (known != names_.end()) {
      known->second->name = name;
      noted_.splice(noted_.end(), noted_, known->second);
      return;
    }
    if (names_.size() == namespaces_max_) {
      names_.erase(noted_.front().digest);
      noted_.pop_front();
    }
    noted_.push_back({digest, std::string(name)});
    names_.emplace(digest, std::prev(noted_.end()));
  }

  // Empty: none, or nobody knows. Good until the next note.
  std::string_view find(const NamespaceDigest& digest) const {
    const auto known = names_.find(digest);
    return known == names_.end() ? std::string_view() : known->second->name;
  }

 private:
  struct Noted {
    NamespaceDigest digest;
    std::string name;
  };

  std::size_t namespaces_max_;
  std::list<Noted> noted_;  // the one noted longest ago first
  std::map<NamespaceDigest, std::list<Noted>::iterator> names_;
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
