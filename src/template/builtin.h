// Builtin: one filter, `is` test or method that templates may use; tables of them, found by name
// when a template is parsed, so that an unknown name is refused before any conversation is
// rendered.
//
// Thread:     tables are constants; calls use one rendering's arena.
// Memory:     results live in the arena.
// Cost:       find is a scan of a short table.
// Not here:   functions by bare name such as namespace() (evaluator.h).
//
// A Builtin that returns an Error says only what is wrong; the evaluator adds file, line and the
// builtin's name.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stemma/result.h"
#include "template/arena.h"
#include "template/value.h"

namespace stemma::jinja {

// Arguments as a template wrote them.
struct Arguments {
  std::span<const Value> positional;
  std::span<const NamedValue> named;
};

struct Call {
  Arena& arena;
  Value self;  // what is filtered, tested or called upon
  std::vector<std::optional<Value>>
      args;                           // one a parameter; of a variadic builtin the positional ones
  std::span<const NamedValue> named;  // of a variadic builtin

  bool has(std::size_t i) const { return i < args.size() && args[i].has_value(); }
};

using BuiltinFunction = Result<Value> (*)(const Call&);

struct Builtin {
  std::string_view name;
  BuiltinFunction apply = nullptr;
  std::array<std::string_view, 4> parameters = {};  // unused ones are empty
  std::int32_t required = 0;                        // how many of them must be given
  bool variadic = false;                            // takes any arguments and looks at them itself
};

// Binds the arguments to the parameters and applies the builtin.
Result<Value> invoke(const Builtin& builtin, Arena& arena, const Value& self,
                     const Arguments& arguments);

// The one with this name in a table, or null.
const Builtin* find_or_null(std::span<const Builtin> table, std::string_view name);

// `| name`.
const Builtin* find_filter_or_null(std::string_view name);
// The same of those alone that make a text.
const Builtin* find_text_filter_or_null(std::string_view name);
// `is name`. Its result is a bool.
const Builtin* find_test_or_null(std::string_view name);
// `.name(...)` of a str, dict, list, tuple or loop.
const Builtin* find_method_or_null(Kind receiver, std::string_view name);
// Whether any of them has it.
bool is_method(std::string_view name);

// Whether argument `at` is given and holds.
Result<bool> flag(const Call& call, std::size_t at);

Error type_error(std::string_view what);

// What python_case.h makes of a text, as a value; an error where it says nothing of it.
Result<Value> case_changed(Arena& arena, std::optional<std::string> changed);

}  // namespace stemma::jinja
