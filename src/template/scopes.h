// Scopes: which value each name has while a template is rendered.
//
// Thread:     one rendering.
// Memory:     one entry a bound name.
// Cost:       a look-up walks the names bound so far, the latest first; templates bind a few dozen.
// Not here:   attributes of a namespace (value.h).
//
// As in Jinja, a loop's body and a set with a body open a scope, and what is set there is gone
// behind it; an if does not. The scope of a macro that is called lies behind a gap: what was bound
// since the macro's own place is not seen over it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

#include "template/value.h"

namespace stemma::jinja {

class Scopes {
 public:
  // The value bound to `name`, undefined if there is none.
  Value find(std::string_view name) const {
    std::size_t gaps = gaps_.size();
    for (std::size_t end = bindings_.size(); end > 0;) {
      if (gaps > 0 && end <= gaps_[gaps - 1].end) {
        end = std::min(end, gaps_[gaps - 1].begin);
        gaps = gaps_[gaps - 1].gaps_before;
        continue;
      }
      const NamedValue& binding = bindings_[--end];
      if (binding.name == name) return binding.value;
    }
    return Value::undefined(name);
  }

  // Binds in the innermost scope.
  void set(std::string_view name, const Value& value) {
    const std::size_t innermost = begins_.empty() ? 0 : begins_.back();
    for (std::size_t i = innermost; i < bindings_.size(); ++i) {
      if (bindings_[i].name == name) {
        bindings_[i].value = value;
        return;
      }
    }
    bindings_.push_back({name, value});
  }

  // What is here now is seen by what is opened at this place later.
  Place place() const { return {begins_.size(), gaps_.size()}; }

  void open() { begins_.push_back(bindings_.size()); }
  // REQUIRES: a scope is open.
  void close() {
    STEMMA_CHECK(!begins_.empty(), "a scope is closed that was opened");
    bindings_.resize(begins_.back());
    begins_.pop_back();
  }

  // A scope from which only what is seen at `place` is. Closes before those that are open now.
  void open_at(const Place& place) {
    const std::size_t end = bindings_.size();
    const std::size_t begin = place.scopes < begins_.size() ? begins_[place.scopes] : end;
    gaps_.push_back({begin, end, std::min(place.gaps, gaps_.size())});
    open();
  }
  // REQUIRES: the innermost scope was opened by open_at.
  void close_at() {
    STEMMA_CHECK(!gaps_.empty(), "a gap is closed that was opened");
    gaps_.pop_back();
    close();
  }

 private:
  // Bindings that are not seen over it, and how many of the gaps before it count there.
  struct Gap {
    std::size_t begin;
    std::size_t end;
    std::size_t gaps_before;
  };

  std::vector<NamedValue> bindings_;
  std::vector<std::size_t> begins_;
  std::vector<Gap> gaps_;
};

}  // namespace stemma::jinja
