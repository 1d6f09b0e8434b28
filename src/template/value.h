// Value: one value of a template, with Python's kinds. A small tagged view: what it names lives in
// an Arena (arena.h), in the template's own text or in the caller's JSON, all of which outlive the
// rendering.
//
// Thread:     values.
// Memory:     32 bytes, no ownership; trivially copyable. Everything but a Namespace is immutable.
// Cost:       none.
// Not here:   arithmetic, comparison and subscripts (operators.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "stemma/result.h"

namespace stemma::jinja {

enum class Kind : std::uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInteger,
  kFloat,
  kText,
  kList,
  kTuple,
  kLazy,  // a generator, view or range of Python: it can be iterated and nothing else
  kMapping,
  kNamespace,
  kLoop,
  kFunction,
  kMacro,
  kMethod,  // of a value, that is named and not called
};

// The functions that a template finds among its globals.
enum class Function : std::uint8_t { kRaiseException, kStrftimeNow, kNamespace, kRange, kDict };

struct List;
struct Mapping;
struct Namespace;
struct Loop;
struct Macro;

class Value {
 public:
  Value() = default;
  // A value that does not exist; `name` is what an error calls it.
  static Value undefined(std::string_view name) { return Value(Kind::kUndefined, name); }
  static Value none() { return Value(Kind::kNone, {}); }
  static Value boolean(bool value) { return Value(Kind::kBool, {}).with_integer(value ? 1 : 0); }
  static Value integer(std::int64_t value) { return Value(Kind::kInteger, {}).with_integer(value); }
  static Value real(double value) {
    Value result(Kind::kFloat, {});
    result.real_ = value;
    return result;
  }
  // An integer beyond 63 bits: it prints as it was written and is compared as the nearest double.
  // Nothing is computed with it.
  static Value wide_integer(std::string_view digits, double nearest) {
    Value result(Kind::kFloat, digits);
    result.real_ = nearest;
    return result;
  }
  static Value text(std::string_view text) { return Value(Kind::kText, text); }
  // REQUIRES: kind is kList, kTuple or kLazy.
  static Value sequence(Kind kind, const List* list) {
    STEMMA_DCHECK(kind >= Kind::kList && kind <= Kind::kLazy, "a kind of sequence");
    Value result(kind, {});
    result.list_ = list;
    return result;
  }
  static Value mapping(const Mapping* mapping) {
    Value result(Kind::kMapping, {});
    result.mapping_ = mapping;
    return result;
  }
  static Value name_space(Namespace* space) {
    Value result(Kind::kNamespace, {});
    result.namespace_ = space;
    return result;
  }
  static Value loop(const Loop* loop) {
    Value result(Kind::kLoop, {});
    result.loop_ = loop;
    return result;
  }
  static Value macro(const Macro* macro) {
    Value result(Kind::kMacro, {});
    result.macro_ = macro;
    return result;
  }
  static Value method(std::string_view name) { return Value(Kind::kMethod, name); }
  static Value function(Function function) {
    return Value(Kind::kFunction, {}).with_integer(static_cast<std::int64_t>(function));
  }

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_defined() const { return kind_ != Kind::kUndefined; }
  // A bool is an integer to Python.
  bool is_whole() const { return kind_ == Kind::kBool || kind_ == Kind::kInteger; }
  bool is_wide_integer() const { return kind_ == Kind::kFloat && !text_.empty(); }
  bool is_number() const { return is_whole() || kind_ == Kind::kFloat; }
  bool is_sequence() const { return kind_ >= Kind::kList && kind_ <= Kind::kLazy; }

  // The text, the name of an undefined value or a method, or the digits of a wide integer.
  std::string_view text() const { return text_; }
  // REQUIRES: is_whole().
  std::int64_t integer() const {
    STEMMA_DCHECK(is_whole(), "an integer");
    return integer_;
  }
  bool boolean() const { return integer() != 0; }
  // REQUIRES: is_number().
  double real() const { return is_whole() ? static_cast<double>(integer_) : real_; }
  const List& list() const {
    STEMMA_DCHECK(is_sequence(), "a sequence");
    return *list_;
  }
  const Mapping& mapping() const {
    STEMMA_DCHECK(is(Kind::kMapping), "a mapping");
    return *mapping_;
  }
  Namespace& name_space() const {
    STEMMA_DCHECK(is(Kind::kNamespace), "a namespace");
    return *namespace_;
  }
  const Loop& loop() const {
    STEMMA_DCHECK(is(Kind::kLoop), "a loop");
    return *loop_;
  }
  const Macro& macro() const {
    STEMMA_DCHECK(is(Kind::kMacro), "a macro");
    return *macro_;
  }
  Function function() const {
    STEMMA_DCHECK(is(Kind::kFunction), "a function");
    return static_cast<Function>(integer_);
  }

 private:
  Value(Kind kind, std::string_view text) : kind_(kind), text_(text) {}
  Value with_integer(std::int64_t value) const {
    Value result = *this;
    result.integer_ = value;
    return result;
  }

  Kind kind_ = Kind::kUndefined;
  std::string_view text_;
  union {
    std::int64_t integer_ = 0;
    double real_;
    const List* list_;
    const Mapping* mapping_;
    Namespace* namespace_;
    const Loop* loop_;
    const Macro* macro_;
  };
};

struct NamedValue {
  std::string_view name;
  Value value;
};

struct List {
  std::vector<Value> items;
  std::int32_t depth = 1;   // levels of lists and mappings, this one included
  std::int64_t weight = 1;  // values reached by walking all of it; bounds every recursion over it
};

// Keys are what may be one in Stemma: texts, numbers, bools and none.
struct MappingEntry {
  Value key;
  Value value;
};

struct Mapping {
  std::vector<MappingEntry> entries;  // in the order of insertion; no two keys are equal
  std::int32_t depth = 1;
  std::int64_t weight = 1;

  const Value* find_or_null(std::string_view name) const {
    for (const MappingEntry& entry : entries) {
      if (entry.key.is(Kind::kText) && entry.key.text() == name) return &entry.value;
    }
    return nullptr;
  }
};

// The one thing that a template can change from inside a loop.
struct Namespace {
  std::vector<NamedValue> attributes;
};

// What may follow in a `for` with a condition: which items pass is found as they are asked for,
// since a body may change what the condition of the next item looks at.
class LoopSource {
 public:
  // Goes on until the loop has `wanted` items, or all.
  virtual Status find(std::size_t wanted) = 0;

 protected:
  ~LoopSource() = default;
};

// Where a `for` is: what the name `loop` stands for in its body.
struct Loop {
  std::span<const Value> items;  // as far as they are known
  std::size_t position = 0;
  LoopSource* more_or_null = nullptr;  // nullptr: there are no more
};

// Where in a template something stands: how many scopes are open there, and gaps between them
// (scopes.h).
struct Place {
  std::size_t scopes = 0;
  std::size_t gaps = 0;
};

struct Statement;

// A part of the template that is rendered where it is called, and sees what is seen where it
// stands.
struct Macro {
  const Statement& statement;
  Place place;
};

// Python's name of the kind, for errors: "str", "list", "undefined".
std::string_view kind_name(Kind kind);

}  // namespace stemma::jinja
