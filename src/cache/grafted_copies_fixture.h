// GraftedCopies: HeldCopies with tenants that go on from a text which all share.
//
//   shared SHARED: 1, 2, … | tenant 1: 2 pages of its own
//                          | tenant 2: 2 ...
//
// Thread:     one.
// Memory:     that of HeldCopies.
// Cost:       an audit a poll.
// Not here:   what is computed when (its tests).
#pragma once

#include <cstddef>
#include <numeric>
#include <vector>

#include "cache/held_copies_fixture.h"
#include "prefix/namespace_examples.h"

namespace stemma {

template <std::size_t shared_pages>
class GraftedCopies : public HeldCopies {
 protected:
  static SharedPrefix prefix() { return {digest_of(200), shared_pages}; }
  NamespaceId open_tenant(int number) {
    const SharedPrefix shared = prefix();
    return *kv->try_open_namespace(digest_of(number), &shared);
  }
  // What a tenant computes, and asks for.
  static std::vector<TokenId> text(int number) {
    std::vector<TokenId> tokens(shared_pages);
    std::iota(tokens.begin(), tokens.end(), 1);
    for (int i = 0; i < 2; ++i) tokens.push_back(1000 * number + i);
    return tokens;
  }
  static std::vector<TokenId> asked(int number) {
    std::vector<TokenId> tokens = text(number);
    tokens.push_back(0);
    return tokens;
  }
  void compute_in(NamespaceId where, const std::vector<TokenId>& tokens) {
    ns = where;
    compute(tokens);
    end_backups();
  }
};

}  // namespace stemma
