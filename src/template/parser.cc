#include "template/parser.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "template/expression_parser.h"
#include "template/lexer.h"
#include "template/token_reader.h"

namespace stemma::jinja {
namespace {

constexpr std::size_t kSourceBytesMax = std::size_t{1} << 20;
constexpr int kNestingMax = 60;
constexpr std::size_t kParametersMax = 100;

using Names = std::span<const std::string_view>;
constexpr std::array<std::string_view, 3> kIfEnds = {"elif", "else", "endif"};
constexpr std::array<std::string_view, 2> kForEnds = {"else", "endfor"};
constexpr std::array<std::string_view, 1> kEndFor = {"endfor"};
constexpr std::array<std::string_view, 1> kEndIf = {"endif"};
constexpr std::array<std::string_view, 1> kEndSet = {"endset"};
constexpr std::array<std::string_view, 1> kEndMacro = {"endmacro"};
constexpr std::array<std::string_view, 1> kEndCall = {"endcall"};
constexpr std::array<std::string_view, 1> kEndFilter = {"endfilter"};
constexpr std::array<std::string_view, 1> kEndWith = {"endwith"};
constexpr std::array<std::string_view, 1> kEndGeneration = {"endgeneration"};

bool is_constant_name(std::string_view name) {
  constexpr std::array<std::string_view, 6> kConstants = {"true",  "True", "false",
                                                          "False", "none", "None"};
  return std::find(kConstants.begin(), kConstants.end(), name) != kConstants.end();
}

// Statements, by recursive descent. Every parse_<statement> begins behind the statement's name.
class StatementParser {
 public:
  StatementParser(std::span<const Token> tokens, Program& program)
      : reader_(tokens, program.file_name),
        program_(program),
        expressions_(reader_, program, names_) {}

  Status run() {
    STEMMA_ASSIGN_OR_RETURN(program_.body, parse_body({}));
    program_.own_names = names_.own_names();
    return {};
  }

 private:
  // Statements up to a `{% name` with one of `ends`, whose name is then the current token. Without
  // `ends`, up to the end of the template.
  Result<std::vector<StatementId>> parse_body(Names ends);
  Result<StatementId> parse_statement();
  Result<StatementId> parse_output();
  Result<StatementId> parse_if();
  // A body that a condition may leave out.
  Result<std::vector<StatementId>> parse_branch(Names ends);
  Result<StatementId> parse_for();
  Result<StatementId> parse_set();
  Result<StatementId> parse_loop_control(StatementKind kind);
  Result<StatementId> parse_macro();
  Result<StatementId> parse_call();
  Result<StatementId> parse_generation();
  Result<StatementId> parse_with();
  Result<StatementId> parse_filter();
  // What is rendered in a scope of its own, up to `ends`: the end of the tag, before it the filters
  // of what is rendered where it is `filtered`, and a body.
  Status parse_scope(Statement& scope, bool filtered, Names ends);
  // The parameters of a macro, in parentheses, with defaults of the last ones.
  Status parse_parameters(Statement& macro);
  // What a macro renders, up to `ends`, in the scope of its parameters; loops around it are not its
  // own.
  Status parse_macro_body(Statement& macro, Names ends);
  Result<std::vector<std::string_view>> parse_targets();
  // What follows the target of a set: "= value", or the end of the tag and a body.
  Status parse_set_value(Statement& set);
  Status expect_statement_end() { return reader_.expect(TokenKind::kStatementEnd, "'%}'"); }
  StatementId add(Statement statement);
  Statement statement(StatementKind kind) const;

  void set_names(const std::vector<std::string_view>& names) {
    for (const std::string_view name : names) names_.set(name);
  }
  // A scope in which these are bound.
  SetNames::Scope open_scope(const std::vector<std::string_view>& bound) {
    const SetNames::Scope scope = names_.open();
    for (const std::string_view name : bound) names_.read(name);
    return scope;
  }

  TokenReader reader_;
  Program& program_;
  SetNames names_;
  ExpressionParser expressions_;
  int nesting_ = 0;
  int loops_ = 0;
};

Result<std::vector<StatementId>> StatementParser::parse_body(Names ends) {
  if (++nesting_ > kNestingMax) return reader_.unsupported("a statement nested this deeply");
  std::vector<StatementId> body;
  while (true) {
    if (reader_.at(TokenKind::kText)) {
      Statement text = statement(StatementKind::kText);
      text.text = reader_.take().text;
      body.push_back(add(std::move(text)));
    } else if (reader_.at(TokenKind::kOutputBegin)) {
      STEMMA_ASSIGN_OR_RETURN(const StatementId output, parse_output());
      body.push_back(output);
    } else if (reader_.at(TokenKind::kStatementBegin)) {
      reader_.take();
      const bool at_end = reader_.at(TokenKind::kName) &&
                          std::find(ends.begin(), ends.end(), reader_.current().text) != ends.end();
      if (at_end) break;
      STEMMA_ASSIGN_OR_RETURN(const StatementId nested, parse_statement());
      body.push_back(nested);
    } else if (ends.empty()) {
      break;
    } else {
      return reader_.syntax_error("{% " + std::string(ends.back()) + " %}");
    }
  }
  --nesting_;
  return body;
}

Result<StatementId> StatementParser::parse_output() {
  Statement output = statement(StatementKind::kOutput);
  reader_.take();
  STEMMA_ASSIGN_OR_RETURN(output.value, expressions_.parse_tuple());
  STEMMA_RETURN_IF_ERROR(reader_.expect(TokenKind::kOutputEnd, "'}}'"));
  return add(std::move(output));
}

Result<StatementId> StatementParser::parse_statement() {
  if (reader_.try_name("if")) return parse_if();
  if (reader_.try_name("for")) return parse_for();
  if (reader_.try_name("set")) return parse_set();
  if (reader_.try_name("macro")) return parse_macro();
  if (reader_.try_name("call")) return parse_call();
  if (reader_.try_name("generation")) return parse_generation();
  if (reader_.try_name("with")) return parse_with();
  if (reader_.try_name("filter")) return parse_filter();
  if (reader_.try_name("break")) return parse_loop_control(StatementKind::kBreak);
  if (reader_.try_name("continue")) return parse_loop_control(StatementKind::kContinue);
  if (!reader_.at(TokenKind::kName)) return reader_.syntax_error("a statement");
  const std::string name(reader_.current().text);
  if (name.starts_with("end") || name == "else" || name == "elif") {
    return reader_.syntax_error("a statement");
  }
  return reader_.unsupported("the statement {% " + name + " %}");
}

Result<StatementId> StatementParser::parse_if() {
  Statement result = statement(StatementKind::kIf);
  while (true) {
    Branch& branch = result.branches.emplace_back();
    STEMMA_ASSIGN_OR_RETURN(branch.condition, expressions_.parse_tuple());
    STEMMA_RETURN_IF_ERROR(expect_statement_end());
    STEMMA_ASSIGN_OR_RETURN(branch.body, parse_branch(kIfEnds));
    if (reader_.try_name("elif")) continue;
    if (reader_.try_name("else")) {
      STEMMA_RETURN_IF_ERROR(expect_statement_end());
      Branch& otherwise = result.branches.emplace_back();
      STEMMA_ASSIGN_OR_RETURN(otherwise.body, parse_branch(kEndIf));
    }
    reader_.take();  // endif
    STEMMA_RETURN_IF_ERROR(expect_statement_end());
    return add(std::move(result));
  }
}

Result<std::vector<StatementId>> StatementParser::parse_branch(Names ends) {
  names_.open_branch();
  STEMMA_ASSIGN_OR_RETURN(std::vector<StatementId> body, parse_body(ends));
  names_.close_branch();
  return body;
}

Result<StatementId> StatementParser::parse_for() {
  Statement loop = statement(StatementKind::kFor);
  STEMMA_ASSIGN_OR_RETURN(loop.names, parse_targets());
  if (!reader_.try_name("in")) return reader_.syntax_error("'in'");
  STEMMA_ASSIGN_OR_RETURN(loop.value, expressions_.parse_or());
  if (reader_.try_name("if")) {
    open_scope(loop.names);
    STEMMA_ASSIGN_OR_RETURN(loop.filter, expressions_.parse());
    names_.close();
  }
  if (reader_.at_name("recursive")) return reader_.unsupported("a recursive for");
  STEMMA_RETURN_IF_ERROR(expect_statement_end());
  ++loops_;
  loop.body_scope = open_scope(loop.names);
  STEMMA_ASSIGN_OR_RETURN(loop.body, parse_body(kForEnds));
  names_.close();
  --loops_;
  if (reader_.try_name("else")) {
    STEMMA_RETURN_IF_ERROR(expect_statement_end());
    loop.otherwise_scope = names_.open();
    STEMMA_ASSIGN_OR_RETURN(loop.otherwise, parse_body(kEndFor));
    names_.close();
  }
  reader_.take();  // endfor
  STEMMA_RETURN_IF_ERROR(expect_statement_end());
  return add(std::move(loop));
}

Result<StatementId> StatementParser::parse_set() {
  Statement set = statement(StatementKind::kSet);
  const bool attribute = reader_.next().kind == TokenKind::kOperator && reader_.next().text == ".";
  if (attribute) {
    set.kind = StatementKind::kSetAttribute;
    STEMMA_ASSIGN_OR_RETURN(const std::string_view space, reader_.expect_name("a name"));
    reader_.take();
    STEMMA_ASSIGN_OR_RETURN(const std::string_view name, reader_.expect_name("a name"));
    set.names = {space, name};
    names_.read(space);
  } else {
    STEMMA_ASSIGN_OR_RETURN(set.names, parse_targets());
  }
  STEMMA_RETURN_IF_ERROR(parse_set_value(set));
  STEMMA_RETURN_IF_ERROR(expect_statement_end());
  return add(std::move(set));
}

Status StatementParser::parse_set_value(Statement& set) {
  if (reader_.try_operator("=")) {
    STEMMA_ASSIGN_OR_RETURN(set.value, expressions_.parse_tuple());
    if (set.kind == StatementKind::kSet) set_names(set.names);
    return {};
  }
  const bool filtered = reader_.at_operator("|");
  if (!filtered && !reader_.at(TokenKind::kStatementEnd)) return reader_.syntax_error("'='");
  if (set.kind == StatementKind::kSetAttribute || set.names.size() != 1) {
    return reader_.unsupported("a {% set %} with a body for anything but one name");
  }
  set.kind = StatementKind::kSetText;
  set_names(set.names);
  if (filtered) reader_.take();
  return parse_scope(set, filtered, kEndSet);
}

Result<StatementId> StatementParser::parse_macro() {
  Statement macro = statement(StatementKind::kMacro);
  STEMMA_ASSIGN_OR_RETURN(macro.text, reader_.expect_name("a macro's name"));
  names_.set(macro.text);
  macro.body_scope = names_.open();
  STEMMA_RETURN_IF_ERROR(parse_parameters(macro));
  STEMMA_RETURN_IF_ERROR(parse_macro_body(macro, kEndMacro));
  return add(std::move(macro));
}

Result<StatementId> StatementParser::parse_call() {
  Statement call = statement(StatementKind::kCallWith);
  call.body_scope = names_.open();
  if (reader_.at_operator("(")) STEMMA_RETURN_IF_ERROR(parse_parameters(call));
  names_.close();
  STEMMA_ASSIGN_OR_RETURN(call.value, expressions_.parse());
  names_.enter(call.body_scope);
  if (program_.at(call.value).kind != ExpressionKind::kCall) {
    return reader_.unsupported("a {% call %} of what is no macro's name");
  }
  STEMMA_RETURN_IF_ERROR(parse_macro_body(call, kEndCall));
  return add(std::move(call));
}

// What transformers marks as the assistant's own words.
Result<StatementId> StatementParser::parse_generation() {
  Statement scope = statement(StatementKind::kScope);
  STEMMA_RETURN_IF_ERROR(parse_scope(scope, /*filtered=*/false, kEndGeneration));
  STEMMA_RETURN_IF_ERROR(expect_statement_end());
  return add(std::move(scope));
}

Status StatementParser::parse_scope(Statement& scope, bool filtered, Names ends) {
  scope.body_scope = names_.open();
  if (filtered) {
    STEMMA_ASSIGN_OR_RETURN(scope.value, expressions_.parse_filters());
  }
  STEMMA_RETURN_IF_ERROR(expect_statement_end());
  STEMMA_ASSIGN_OR_RETURN(scope.body, parse_body(ends));
  names_.close();
  reader_.take();  // the end
  return {};
}

Result<StatementId> StatementParser::parse_filter() {
  Statement filter = statement(StatementKind::kFilterText);
  STEMMA_RETURN_IF_ERROR(parse_scope(filter, /*filtered=*/true, kEndFilter));
  STEMMA_RETURN_IF_ERROR(expect_statement_end());
  return add(std::move(filter));
}

// The values see none of the names.
Result<StatementId> StatementParser::parse_with() {
  Statement with = statement(StatementKind::kWith);
  while (!reader_.at(TokenKind::kStatementEnd)) {
    if (!with.bindings.empty()) STEMMA_RETURN_IF_ERROR(reader_.expect_operator(","));
    Statement binding = statement(StatementKind::kSet);
    STEMMA_ASSIGN_OR_RETURN(binding.names, parse_targets());
    STEMMA_RETURN_IF_ERROR(reader_.expect_operator("="));
    STEMMA_ASSIGN_OR_RETURN(binding.value, expressions_.parse());
    with.names.insert(with.names.end(), binding.names.begin(), binding.names.end());
    with.bindings.push_back(add(std::move(binding)));
  }
  STEMMA_RETURN_IF_ERROR(expect_statement_end());
  with.body_scope = open_scope(with.names);
  STEMMA_ASSIGN_OR_RETURN(with.body, parse_body(kEndWith));
  names_.close();
  reader_.take();  // endwith
  STEMMA_RETURN_IF_ERROR(expect_statement_end());
  return add(std::move(with));
}

Status StatementParser::parse_parameters(Statement& macro) {
  STEMMA_RETURN_IF_ERROR(reader_.expect_operator("("));
  while (!reader_.try_operator(")")) {
    if (!macro.names.empty()) STEMMA_RETURN_IF_ERROR(reader_.expect_operator(","));
    STEMMA_ASSIGN_OR_RETURN(const std::string_view name, reader_.expect_name("a parameter"));
    const bool is_new =
        std::find(macro.names.begin(), macro.names.end(), name) == macro.names.end();
    if (is_constant_name(name) || !is_new) {
      return reader_.syntax_error("a name of its own before this");
    }
    if (macro.names.size() == kParametersMax) return reader_.unsupported("so many parameters");
    macro.names.push_back(name);
    names_.read(name);
    if (reader_.try_operator("=")) {
      STEMMA_ASSIGN_OR_RETURN(const ExpressionId value, expressions_.parse());
      macro.defaults.push_back(value);
    } else if (!macro.defaults.empty()) {
      return reader_.syntax_error("a default, as the parameter before has one,");
    }
  }
  return {};
}

Status StatementParser::parse_macro_body(Statement& macro, Names ends) {
  STEMMA_RETURN_IF_ERROR(expect_statement_end());
  const int loops_around = std::exchange(loops_, 0);
  const CallNames named_around = expressions_.set_call_names({});
  STEMMA_ASSIGN_OR_RETURN(macro.body, parse_body(ends));
  // What a macro within it names, it names too.
  const CallNames& named = macro.call_names = expressions_.set_call_names({});
  expressions_.set_call_names({.caller = named_around.caller || named.caller,
                               .varargs = named_around.varargs || named.varargs,
                               .kwargs = named_around.kwargs || named.kwargs});
  loops_ = loops_around;
  names_.close();
  reader_.take();  // the end
  return expect_statement_end();
}

Result<StatementId> StatementParser::parse_loop_control(StatementKind kind) {
  Statement control = statement(kind);
  if (loops_ == 0) return reader_.syntax_error("a loop around this statement");
  STEMMA_RETURN_IF_ERROR(expect_statement_end());
  return add(std::move(control));
}

Result<std::vector<std::string_view>> StatementParser::parse_targets() {
  const bool parentheses = reader_.try_operator("(");
  std::vector<std::string_view> names;
  do {
    STEMMA_ASSIGN_OR_RETURN(const std::string_view name, reader_.expect_name("a name"));
    if (is_constant_name(name)) return reader_.syntax_error("a name, not a constant, before this");
    names.push_back(name);
  } while (reader_.try_operator(","));
  if (parentheses) STEMMA_RETURN_IF_ERROR(reader_.expect_operator(")"));
  return names;
}

StatementId StatementParser::add(Statement node) {
  program_.statements.push_back(std::move(node));
  return StatementId(static_cast<std::int32_t>(program_.statements.size() - 1));
}

Statement StatementParser::statement(StatementKind kind) const {
  Statement result;
  result.kind = kind;
  result.line = reader_.current().line;
  return result;
}

}  // namespace

Result<std::unique_ptr<const Program>> parse_program(std::string_view source,
                                                     std::string_view file_name) {
  if (source.size() > kSourceBytesMax) {
    return Error{ErrorCode::kTooLarge, std::string(file_name) + ": a template of " +
                                           std::to_string(source.size()) + " bytes (at most " +
                                           std::to_string(kSourceBytesMax) + ")"};
  }
  auto program = std::make_unique<Program>();
  program->file_name = file_name;
  program->source = normalized_source(source);
  STEMMA_ASSIGN_OR_RETURN(const std::vector<Token> tokens,
                          tokenize(program->source, program->file_name, program->texts));
  STEMMA_RETURN_IF_ERROR(StatementParser(tokens, *program).run());
  return std::unique_ptr<const Program>(std::move(program));
}

}  // namespace stemma::jinja
