// Scopes: which value each name has while a template is rendered.
//
// Thread:     one rendering.
// Memory:     one entry a bound name.
// Cost:       a look-up walks the names bound so far, the latest first; templates bind a few dozen.
// Not here:   attributes of a namespace (value.h).
//
// As in Jinja, a loop's body and a set with a body open a scope, and what is set there is gone
// behind it; an if does not.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "template/value.h"

namespace stemma::jinja {

class Scopes {
 public:
  // The value bound to `name`, undefined if there is none.
  Value find(std::string_view name) const {
    for (std::size_t i = bindings_.size(); i-- > 0;) {
      if (bindings_[i].name == name) return bindings_[i].value;
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

  void open() { begins_.push_back(bindings_.size()); }
  // REQUIRES: a scope is open.
  void close() {
    STEMMA_CHECK(!begins_.empty(), "a scope is closed that was opened");
    bindings_.resize(begins_.back());
    begins_.pop_back();
  }

 private:
  std::vector<NamedValue> bindings_;
  std::vector<std::size_t> begins_;
};

}  // namespace stemma::jinja
