#include "template/builtin.h"

#include <string>
#include <utility>

#include "template/operators.h"

namespace stemma::jinja {
namespace {

std::size_t parameter_count(const Builtin& builtin) {
  std::size_t count = 0;
  while (count < builtin.parameters.size() && !builtin.parameters[count].empty()) ++count;
  return count;
}

Status bind_named(const Builtin& builtin, std::span<const NamedValue> named, Call& call) {
  for (const NamedValue& argument : named) {
    std::size_t i = 0;
    while (i < call.args.size() && builtin.parameters[i] != argument.name) ++i;
    if (i == call.args.size()) {
      return type_error("there is no argument '" + std::string(argument.name) + "'");
    }
    if (call.args[i]) return type_error("'" + std::string(argument.name) + "' is given twice");
    call.args[i] = argument.value;
  }
  return {};
}

}  // namespace

Result<Value> invoke(const Builtin& builtin, Arena& arena, const Value& self,
                     const Arguments& arguments) {
  Call call{arena, self, {}, arguments.named};
  call.args.assign(arguments.positional.begin(), arguments.positional.end());
  if (builtin.variadic) return builtin.apply(call);
  const std::size_t count = parameter_count(builtin);
  if (call.args.size() > count) {
    return type_error("at most " + std::to_string(count) + " arguments are taken");
  }
  call.args.resize(count);
  STEMMA_RETURN_IF_ERROR(bind_named(builtin, arguments.named, call));
  for (std::size_t i = 0; i < static_cast<std::size_t>(builtin.required); ++i) {
    if (!call.args[i]) {
      return type_error("the argument '" + std::string(builtin.parameters[i]) + "' is missing");
    }
  }
  return builtin.apply(call);
}

const Builtin* find_or_null(std::span<const Builtin> table, std::string_view name) {
  for (const Builtin& builtin : table) {
    if (builtin.name == name) return &builtin;
  }
  return nullptr;
}

Result<bool> flag(const Call& call, std::size_t at) {
  if (!call.has(at)) return false;
  return truth(*call.args[at]);
}

Error type_error(std::string_view what) {
  return Error{ErrorCode::kInvalidArgument, std::string(what)};
}

Result<Value> case_changed(Arena& arena, std::optional<std::string> changed) {
  if (changed.has_value()) return arena.text(std::move(*changed));
  return Error{ErrorCode::kUnsupported,
               "changing the case of characters that become several is not supported"};
}

}  // namespace stemma::jinja
