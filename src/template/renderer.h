// Renderer: runs a program's statements and collects the text they write.
//
// Thread:     one rendering.
// Memory:     the output, and the arena's values.
// Cost:       one step a statement, charged to the arena.
// Not here:   expressions (evaluator.h), who calls it and with what (chat_template.h).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stemma/result.h"
#include "template/evaluator.h"

namespace stemma::jinja {

// All parameters are kept by reference and outlive the renderer.
class Renderer final : private MacroRenderer {
 public:
  Renderer(const Program& program, Arena& arena, Scopes& scopes, const DateFunction& date)
      : program_(program),
        arena_(arena),
        scopes_(scopes),
        evaluator_(program, arena, scopes, date, *this) {}

  // The text of the whole template.
  Result<std::string> run();

 private:
  // How a statement ended: whether the loop around it goes on.
  enum class Flow : std::uint8_t { kNext, kBreak, kContinue };

  Result<Flow> body(std::span<const StatementId> statements);
  // The same in a scope of its own.
  Result<Flow> scope(std::span<const StatementId> statements, SetNames::Scope names);
  // What the scope that begins sets before it reads it has no value in it yet.
  void begin_scope(SetNames::Scope names);
  Result<Flow> statement(const Statement& node);
  Result<Flow> branches(const Statement& node);
  Result<Flow> loop(const Statement& node);
  class PassingItems;
  // Whether an iteration came to its end.
  Result<bool> iterate(const Statement& node, Loop& loop);
  Status output(const Statement& node);
  Status set(const Statement& node);
  Status set_attribute(const Statement& node);
  // What was written from there on, which is no longer output.
  Value take_output(std::size_t begin);
  // The text that a body writes, as its filters make it.
  Result<Value> rendered(const Statement& node);
  Status set_text(const Statement& node);
  Status filter_text(const Statement& node);
  Result<Flow> with(const Statement& node);
  Status call_with(const Statement& node);
  Result<Value> call_macro(const Macro& macro, const Arguments& arguments) override;
  // The arguments of a call, in the macro's own scope.
  Status bind_arguments(const Statement& macro, const Arguments& arguments);
  Status bind_parameters(const Statement& macro, const std::vector<std::optional<Value>>& values);
  Value macro_here(const Statement& node);
  // Binds one name, or several names to as many items.
  Status bind(const Statement& node, const Value& value);
  Status write_value(const Statement& node, const Value& value);
  Status write(const Statement& node, std::string_view text);
  Error error(const Statement& node, const Error& cause) const;

  const Program& program_;
  Arena& arena_;
  Scopes& scopes_;
  Evaluator evaluator_;
  std::string output_;
};

}  // namespace stemma::jinja
