// SetNames: which names a template sets before it reads them, scope by scope.
//
// Jinja decides for each scope where its names come from. One that a scope sets before anything in
// it reads it is the scope's own from its begin on: what stands in an inner scope before the set
// does not see the caller's value of that name, but none. Reads of inner scopes do not count, nor
// do sets that a condition may leave out, or names that a scope around this one has.
//
//   {% for m in messages %}{{ tools }}{% endfor %}{% set tools = 1 %}     prints no tools
//
// Thread:     one parse.
// Memory:     the names of each scope; they lie in the template.
// Cost:       O(log names) a name.
// Not here:   values (scopes.h).
#pragma once

#include <cstddef>
#include <set>
#include <string_view>
#include <vector>

namespace stemma::jinja {

class SetNames {
 public:
  using Scope = std::size_t;
  static constexpr Scope kTemplate = 0;

  SetNames() : scopes_(1) {}

  // A scope in the current one, which becomes it.
  Scope open() {
    scopes_.push_back({.around = current_});
    return current_ = scopes_.size() - 1;
  }
  // One that was closed before goes on.
  void enter(Scope scope) { current_ = scope; }
  void close() { current_ = scopes_[current_].around; }
  // What a condition may leave out begins and ends.
  void open_branch() { ++scopes_[current_].branches; }
  void close_branch() { --scopes_[current_].branches; }

  // Also of what is bound with the scope: parameters, the names of a for.
  void read(std::string_view name) { scopes_[current_].named.insert(name); }
  void set(std::string_view name) {
    Names& scope = scopes_[current_];
    const bool is_first = scope.named.insert(name).second;
    if (is_first && scope.branches == 0) scope.set_first.push_back(name);
  }

  // The names that are each scope's own from its begin on. REQUIRES: all of the template was told.
  std::vector<std::vector<std::string_view>> own_names() const {
    std::vector<std::vector<std::string_view>> all;
    for (const Names& each : scopes_) {
      std::vector<std::string_view>& names = all.emplace_back(each.set_first);
      for (const Names* scope = &each; scope != &scopes_[kTemplate];) {
        scope = &scopes_[scope->around];
        std::erase_if(names, [&](std::string_view name) { return scope->named.contains(name); });
      }
    }
    return all;
  }

 private:
  struct Names {
    Scope around = kTemplate;
    int branches = 0;
    std::set<std::string_view> named = {};
    std::vector<std::string_view> set_first = {};
  };

  std::vector<Names> scopes_;
  Scope current_ = kTemplate;
};

}  // namespace stemma::jinja
