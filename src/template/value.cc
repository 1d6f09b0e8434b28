#include "template/value.h"

namespace stemma::jinja {

std::string_view kind_name(Kind kind) {
  switch (kind) {
    case Kind::kUndefined:
      return "undefined";
    case Kind::kNone:
      return "none";
    case Kind::kBool:
      return "bool";
    case Kind::kInteger:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kText:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kLazy:
      return "lazy sequence";
    case Kind::kMapping:
      return "dict";
    case Kind::kNamespace:
      return "namespace";
    case Kind::kLoop:
      return "loop";
    case Kind::kFunction:
      return "function";
    case Kind::kMacro:
      return "macro";
    case Kind::kMethod:
      return "method";
  }
  return "value";
}

}  // namespace stemma::jinja
