#include "template/renderer.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "template/lexer.h"
#include "template/operators.h"

namespace stemma::jinja {

Result<std::string> Renderer::run() {
  begin_scope(SetNames::kTemplate);
  STEMMA_ASSIGN_OR_RETURN(const Flow flow, body(program_.body));
  STEMMA_CHECK(flow == Flow::kNext, "the parser lets no break stand outside a loop");
  return std::move(output_);
}

Result<Renderer::Flow> Renderer::body(std::span<const StatementId> statements) {
  const Arena::Level level(arena_);
  for (const StatementId id : statements) {
    arena_.charge_steps(1);
    STEMMA_ASSIGN_OR_RETURN(const Flow flow, statement(program_.at(id)));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

void Renderer::begin_scope(SetNames::Scope names) {
  for (const std::string_view name : program_.own_names[names]) {
    if (scopes_.find(name).is_defined()) scopes_.set(name, Value::undefined(name));
  }
}

Result<Renderer::Flow> Renderer::scope(std::span<const StatementId> statements,
                                       SetNames::Scope names) {
  scopes_.open();
  begin_scope(names);
  STEMMA_ASSIGN_OR_RETURN(const Flow flow, body(statements));
  scopes_.close();
  return flow;
}

Result<Renderer::Flow> Renderer::statement(const Statement& node) {
  Status status;
  switch (node.kind) {
    case StatementKind::kText:
      status = write(node, node.text);
      break;
    case StatementKind::kOutput:
      status = output(node);
      break;
    case StatementKind::kSet:
      status = set(node);
      break;
    case StatementKind::kSetAttribute:
      status = set_attribute(node);
      break;
    case StatementKind::kSetText:
      status = set_text(node);
      break;
    case StatementKind::kMacro:
      scopes_.set(node.text, macro_here(node));
      break;
    case StatementKind::kCallWith:
      status = call_with(node);
      break;
    case StatementKind::kScope:
      return scope(node.body, node.body_scope);
    case StatementKind::kWith:
      return with(node);
    case StatementKind::kFilterText:
      status = filter_text(node);
      break;
    case StatementKind::kIf:
      return branches(node);
    case StatementKind::kFor:
      return loop(node);
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  if (!status.ok()) return std::move(status).error();
  return Flow::kNext;
}

Result<Renderer::Flow> Renderer::branches(const Statement& node) {
  for (const Branch& branch : node.branches) {
    bool taken = true;
    if (branch.condition.valid()) {
      STEMMA_ASSIGN_OR_RETURN(taken, evaluator_.condition(branch.condition));
    }
    if (taken) return body(branch.body);
  }
  return Flow::kNext;
}

// The items of a `for` that pass its condition, which sees what is seen before the loop's body.
class Renderer::PassingItems final : public LoopSource {
 public:
  // `loop` has all items.
  PassingItems(Renderer& renderer, const Statement& node, Loop& loop)
      : renderer_(renderer),
        node_(node),
        loop_(loop),
        place_(renderer.scopes_.place()),
        all_(std::exchange(loop.items, {})) {
    loop.more_or_null = this;
  }

  Status find(std::size_t wanted) override {
    for (; passing_.size() < wanted && looked_at_ < all_.size(); ++looked_at_) {
      const Value& item = all_[looked_at_];
      renderer_.scopes_.open_at(place_);
      STEMMA_RETURN_IF_ERROR(renderer_.bind(node_, item));
      STEMMA_ASSIGN_OR_RETURN(const bool passes, renderer_.evaluator_.condition(node_.filter));
      renderer_.scopes_.close_at();
      if (passes) passing_.push_back(item);
    }
    loop_.items = passing_;
    return {};
  }

  // The loop has ended: who kept it sees the items that it had.
  void end() {
    loop_.more_or_null = nullptr;
    loop_.items = renderer_.arena_.sequence(Kind::kLazy, std::move(passing_)).list().items;
  }

 private:
  Renderer& renderer_;
  const Statement& node_;
  Loop& loop_;
  Place place_;
  std::span<const Value> all_;
  std::size_t looked_at_ = 0;
  std::vector<Value> passing_;
};

Result<Renderer::Flow> Renderer::loop(const Statement& node) {
  STEMMA_ASSIGN_OR_RETURN(const Value value, evaluator_.evaluate(node.value));
  Result<std::span<const Value>> items = elements(arena_, value);
  if (!items.ok()) return error(node, items.error());
  Loop* const loop = arena_.loop(*items);
  std::optional<PassingItems> passing;
  if (node.filter.valid()) passing.emplace(*this, node, *loop);
  STEMMA_ASSIGN_OR_RETURN(const bool completed, iterate(node, *loop));
  if (passing.has_value()) passing->end();
  if (completed || node.otherwise.empty()) return Flow::kNext;
  return scope(node.otherwise, node.otherwise_scope);
}

Result<bool> Renderer::iterate(const Statement& node, Loop& loop) {
  bool completed = false;
  for (std::size_t position = 0;; ++position) {
    if (loop.more_or_null != nullptr) {
      STEMMA_RETURN_IF_ERROR(loop.more_or_null->find(position + 1));
    }
    if (position >= loop.items.size()) return completed;
    loop.position = position;
    arena_.charge_steps(1);
    scopes_.open();
    begin_scope(node.body_scope);
    scopes_.set("loop", Value::loop(&loop));
    STEMMA_RETURN_IF_ERROR(bind(node, loop.items[position]));
    STEMMA_ASSIGN_OR_RETURN(const Flow flow, body(node.body));
    scopes_.close();
    if (flow == Flow::kBreak) return completed;
    completed = completed || flow == Flow::kNext;
    if (!arena_.exceeded().empty()) {
      return source_error(ErrorCode::kTooLarge, program_.file_name, node.line,
                          "rendering exceeds its limit of " + std::string(arena_.exceeded()));
    }
  }
}

Status Renderer::output(const Statement& node) {
  STEMMA_ASSIGN_OR_RETURN(const Value value, evaluator_.evaluate(node.value));
  return write_value(node, value);
}

Status Renderer::set(const Statement& node) {
  STEMMA_ASSIGN_OR_RETURN(const Value value, evaluator_.evaluate(node.value));
  return bind(node, value);
}

Status Renderer::set_attribute(const Statement& node) {
  STEMMA_ASSIGN_OR_RETURN(const Value value, evaluator_.evaluate(node.value));
  const Value space = scopes_.find(node.names[0]);
  if (!space.is(Kind::kNamespace)) {
    return error(node,
                 type_error("set " + std::string(node.names[0]) + "." + std::string(node.names[1]) +
                            ": not a namespace but " + described(space)));
  }
  for (NamedValue& attribute : space.name_space().attributes) {
    if (attribute.name != node.names[1]) continue;
    attribute.value = value;
    return {};
  }
  space.name_space().attributes.push_back({node.names[1], value});
  return {};
}

Value Renderer::take_output(std::size_t begin) {
  const Value text = arena_.text(output_.substr(begin));
  output_.resize(begin);
  return text;
}

Result<Value> Renderer::rendered(const Statement& node) {
  const std::size_t begin = output_.size();
  scopes_.open();
  begin_scope(node.body_scope);
  STEMMA_ASSIGN_OR_RETURN(const Flow flow, body(node.body));
  if (flow != Flow::kNext) {
    return error(node, {ErrorCode::kUnsupported,
                        "leaving a loop from what is rendered for a {% set %} or {% filter %} is "
                        "not supported"});
  }
  Value value = take_output(begin);
  if (node.value.valid()) {  // filters see what the body has set
    STEMMA_ASSIGN_OR_RETURN(value, evaluator_.evaluate_filters(node.value, value));
  }
  scopes_.close();
  return value;
}

Status Renderer::set_text(const Statement& node) {
  STEMMA_ASSIGN_OR_RETURN(const Value value, rendered(node));
  return bind(node, value);
}

Status Renderer::filter_text(const Statement& node) {
  STEMMA_ASSIGN_OR_RETURN(const Value value, rendered(node));
  if (!value.is(Kind::kText)) return error(node, wrong_kind("a str of the filters", value));
  return write(node, value.text());
}

Result<Renderer::Flow> Renderer::with(const Statement& node) {
  std::vector<Value> values;
  for (const StatementId id : node.bindings) {
    STEMMA_ASSIGN_OR_RETURN(const Value value, evaluator_.evaluate(program_.at(id).value));
    values.push_back(value);
  }
  scopes_.open();
  begin_scope(node.body_scope);
  for (std::size_t i = 0; i < values.size(); ++i) {
    STEMMA_RETURN_IF_ERROR(bind(program_.at(node.bindings[i]), values[i]));
  }
  STEMMA_ASSIGN_OR_RETURN(const Flow flow, body(node.body));
  scopes_.close();
  return flow;
}

Value Renderer::macro_here(const Statement& node) {
  return Value::macro(arena_.macro({node, scopes_.place()}));
}

Status Renderer::call_with(const Statement& node) {
  STEMMA_ASSIGN_OR_RETURN(const Value value,
                          evaluator_.evaluate_call(node.value, macro_here(node)));
  return write_value(node, value);
}

Result<Value> Renderer::call_macro(const Macro& macro, const Arguments& arguments) {
  const std::size_t begin = output_.size();
  scopes_.open_at(macro.place);
  begin_scope(macro.statement.body_scope);
  STEMMA_RETURN_IF_ERROR(bind_arguments(macro.statement, arguments));
  STEMMA_ASSIGN_OR_RETURN(const Flow flow, body(macro.statement.body));
  STEMMA_CHECK(flow == Flow::kNext, "the parser lets no break stand outside a loop");
  scopes_.close_at();
  return take_output(begin);
}

// What no parameter takes is bound to the names by which the body asks for it.
Status Renderer::bind_arguments(const Statement& macro, const Arguments& arguments) {
  const auto& names = macro.names;
  const std::size_t taken = std::min(arguments.positional.size(), names.size());
  const auto beyond = arguments.positional.subspan(taken);
  if (!beyond.empty() && !macro.call_names.varargs) {
    return type_error("at most " + std::to_string(names.size()) + " arguments are taken");
  }
  Value caller = Value::undefined("caller");
  std::vector<NamedValue> others;
  std::vector<std::optional<Value>> values(arguments.positional.begin(),
                                           arguments.positional.end() - std::ssize(beyond));
  values.resize(names.size());
  for (const NamedValue& argument : arguments.named) {
    const auto at = static_cast<std::size_t>(std::find(names.begin(), names.end(), argument.name) -
                                             names.begin());
    if (at < names.size() && !values[at].has_value()) {
      values[at] = argument.value;
    } else if (argument.name == "caller" && macro.call_names.caller) {
      caller = argument.value;
    } else if (macro.call_names.kwargs) {
      others.push_back(argument);
    } else {
      return type_error("there is no argument '" + std::string(argument.name) + "' to be given");
    }
  }
  scopes_.set("caller", caller);
  if (macro.call_names.varargs) {
    scopes_.set("varargs", arena_.sequence(Kind::kTuple, {beyond.begin(), beyond.end()}));
  }
  if (macro.call_names.kwargs) scopes_.set("kwargs", arena_.mapping(others));
  return bind_parameters(macro, values);
}

// A default sees what was given and the defaults before it, and nothing outside of these names.
Status Renderer::bind_parameters(const Statement& macro,
                                 const std::vector<std::optional<Value>>& values) {
  const auto& names = macro.names;
  for (std::size_t i = 0; i < names.size(); ++i) {
    scopes_.set(names[i], values[i].value_or(Value::undefined(names[i])));
  }
  const std::size_t required = names.size() - macro.defaults.size();
  for (std::size_t i = required; i < names.size(); ++i) {
    if (values[i].has_value()) continue;
    STEMMA_ASSIGN_OR_RETURN(const Value value, evaluator_.evaluate(macro.defaults[i - required]));
    scopes_.set(names[i], value);
  }
  return {};
}

Status Renderer::bind(const Statement& node, const Value& value) {
  if (node.names.size() == 1) {
    scopes_.set(node.names[0], value);
    return {};
  }
  Result<std::span<const Value>> items = elements(arena_, value);
  if (!items.ok()) return error(node, items.error());
  if (items->size() != node.names.size()) {
    return error(node, type_error("a value of " + std::to_string(items->size()) + " items for " +
                                  std::to_string(node.names.size()) + " names"));
  }
  for (std::size_t i = 0; i < node.names.size(); ++i) scopes_.set(node.names[i], (*items)[i]);
  return {};
}

Status Renderer::write_value(const Statement& node, const Value& value) {
  Result<Value> text = to_text(arena_, value);
  if (!text.ok()) return error(node, text.error());
  return write(node, text->text());
}

Status Renderer::write(const Statement& node, std::string_view text) {
  if (text.size() > arena_.limits().output_bytes_max - output_.size()) {
    return source_error(ErrorCode::kTooLarge, program_.file_name, node.line,
                        "rendering exceeds its limit of output");
  }
  output_ += text;
  return {};
}

Error Renderer::error(const Statement& node, const Error& cause) const {
  return source_error(cause.code, program_.file_name, node.line, cause.detail);
}

}  // namespace stemma::jinja
