// The namespaces of a request that is computed with an adapter.
//
// Thread:     a pure function.
// Memory:     none.
// Cost:       a digest a namespace.
// Not here:   which adapters there are (model/adapter_book).
#pragma once

#include "prefix/namespace_digest.h"
#include "stemma/engine.h"
#include "stemma/runner.h"

namespace stemma {

// Whatever names a namespace of `spec` names that of `adapter` from here on.
inline void enter_namespaces(const AdapterIdentity& adapter, RequestSpec& spec) {
  const auto enter = [&](NamespaceDigest& digest) { digest = adapted(digest, adapter.digest); };
  enter(spec.namespace_digest);
  if (spec.shared_prefix.has_value()) enter(spec.shared_prefix->digest);
  for (SiblingNamespace& sibling : spec.siblings) enter(sibling.digest);
}

}  // namespace stemma
