// distinct: a list as a set.
//
// Thread:     any.
// Memory:     no more than what it gives takes.
// Cost:       O(n log n); O(n) for a list that is one already.
// Not here:   lists whose order or repeats mean something.
#pragma once

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

namespace stemma {

// Each of `values` once, the least first.
template <typename Value>
std::vector<Value> distinct(std::vector<Value> values) {
  const bool ascends =
      std::adjacent_find(values.begin(), values.end(), std::greater_equal<>()) == values.end();
  if (!ascends) {
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    values.shrink_to_fit();
  }
  return values;
}

}  // namespace stemma
