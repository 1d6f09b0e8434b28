#include "template/renderer.h"

#include <utility>

#include "template/lexer.h"
#include "template/operators.h"

namespace stemma::jinja {

Result<std::string> Renderer::run() {
  STEMMA_ASSIGN_OR_RETURN(const Flow flow, body(program_.body));
  STEMMA_CHECK(flow == Flow::kNext, "the parser lets no break stand outside a loop");
  return std::move(output_);
}

Result<Renderer::Flow> Renderer::body(std::span<const StatementId> statements) {
  for (const StatementId id : statements) {
    arena_.charge_steps(1);
    STEMMA_ASSIGN_OR_RETURN(const Flow flow, statement(program_.at(id)));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
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

Result<Renderer::Flow> Renderer::loop(const Statement& node) {
  STEMMA_ASSIGN_OR_RETURN(const auto items, loop_items(node));
  if (items.empty()) return body(node.otherwise);
  return iterate(node, items);
}

Result<std::span<const Value>> Renderer::loop_items(const Statement& node) {
  STEMMA_ASSIGN_OR_RETURN(const Value value, evaluator_.evaluate(node.value));
  Result<std::span<const Value>> items = elements(arena_, value);
  if (!items.ok()) return error(node, items.error());
  if (!node.filter.valid()) return items;
  std::vector<Value> kept;
  for (const Value& item : *items) {
    scopes_.open();
    STEMMA_RETURN_IF_ERROR(bind(node, item));
    STEMMA_ASSIGN_OR_RETURN(const bool passes, evaluator_.condition(node.filter));
    scopes_.close();
    if (passes) kept.push_back(item);
  }
  return std::span<const Value>(arena_.sequence(Kind::kLazy, std::move(kept)).list().items);
}

Result<Renderer::Flow> Renderer::iterate(const Statement& node, std::span<const Value> items) {
  Loop* state = arena_.loop(items);
  for (state->position = 0; state->position < items.size(); ++state->position) {
    arena_.charge_steps(1);
    scopes_.open();
    scopes_.set("loop", Value::loop(state));
    STEMMA_RETURN_IF_ERROR(bind(node, items[state->position]));
    STEMMA_ASSIGN_OR_RETURN(const Flow flow, body(node.body));
    scopes_.close();
    if (flow == Flow::kBreak) break;
    if (!arena_.exceeded().empty()) {
      return source_error(ErrorCode::kTooLarge, program_.file_name, node.line,
                          "rendering exceeds its limit of " + std::string(arena_.exceeded()));
    }
  }
  return Flow::kNext;
}

Status Renderer::output(const Statement& node) {
  STEMMA_ASSIGN_OR_RETURN(const Value value, evaluator_.evaluate(node.value));
  Result<Value> text = to_text(arena_, value);
  if (!text.ok()) return error(node, text.error());
  return write(node, text->text());
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

Status Renderer::set_text(const Statement& node) {
  const std::size_t begin = output_.size();
  scopes_.open();
  STEMMA_ASSIGN_OR_RETURN(const Flow flow, body(node.body));
  scopes_.close();
  if (flow != Flow::kNext) {
    return error(node,
                 {ErrorCode::kUnsupported, "leaving a loop from a {% set %} is not supported"});
  }
  const Value text = arena_.text(output_.substr(begin));
  output_.resize(begin);
  return bind(node, text);
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
