#include "cli/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/json_text.h"

namespace stemma {

namespace {

// An empty value is what a shell makes of a variable that is not set: whoever typed the flag meant
// something, and is not to get what they get who did not.
std::string check_filled(const std::string& value) {
  return value.empty() ? "is empty" : std::string();
}

// No limit holds for NaN: it is neither below nor above.
template <typename Number>
std::string check_finite(const std::string& value) {
  Number number = 0;
  if (!CLI::detail::lexical_cast(value, number) || std::isfinite(number)) return {};
  return value + " is no finite number";
}

bool knows(const CLI::App& app, const std::string& flag) {
  if (app.get_option_no_throw(flag) != nullptr) return true;
  const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  return std::any_of(commands.begin(), commands.end(),
                     [&](const CLI::App* command) { return knows(*command, flag); });
}

bool is_command(const CLI::App& app, const std::string& word) {
  const auto named = [&](const CLI::App* command) { return command->get_name() == word; };
  return !app.get_subcommands(named).empty();
}

// The flag of "--name=": CLI11 would take the next word for its value. Empty: the word is none.
std::string flag_without_value(const CLI::App& app, std::string_view word) {
  if (!word.starts_with("--") || word.find('=') + 1 != word.size()) return {};
  const std::string flag(word.substr(0, word.size() - 1));
  return knows(app, flag) ? flag : std::string();
}

}  // namespace

Flag Flag::capture_default_str() {
  option_->capture_default_str();
  return *this;
}

Flag Flag::required(bool wanted) {
  option_->required(wanted);
  return *this;
}

Flag Flag::description(const std::string& help) {
  option_->description(help);
  return *this;
}

Flag Flag::delimiter(char between) {
  option_->delimiter(between);
  return *this;
}

Flag Flag::check_range(int least, int most) {
  return check_range(std::int64_t{least}, std::int64_t{most});
}

Flag Flag::check_range(std::int64_t least, std::int64_t most) {
  option_->check(CLI::Range(least, most));
  return *this;
}

Flag Flag::check_range(double least, double most) {
  option_->check(CLI::Range(least, most));
  return *this;
}

Flag Flag::check(Status (*find_wrong)(std::string_view value)) {
  option_->check([find_wrong](const std::string& value) {
    const Status status = find_wrong(value);
    return status.ok() ? std::string() : status.error().detail;
  });
  return *this;
}

Flag Flag::check_member(const std::vector<std::string>& values) {
  option_->check(CLI::IsMember(values));
  return *this;
}

Flag Flag::needs(const std::string& name) {
  option_->needs(name);
  return *this;
}

std::int64_t Flag::count() const {
  return static_cast<std::int64_t>(option_->count());
}

std::string Flag::get_name() const {
  return option_->get_name();
}

Flags Flags::add_command(const std::string& name, const std::string& description) {
  return Flags(app_->add_subcommand(name, description));
}

Flags Flags::add_group(const std::string& name, const std::string& description) {
  return Flags(app_->add_option_group(name, description));
}

Flag Flags::add(const std::string& names, std::string& target, const std::string& help) {
  return Flag(app_->add_option(names, target, help)->check(check_filled));
}

Flag Flags::add(const std::string& names, int& target, const std::string& help) {
  return Flag(app_->add_option(names, target, help)->check(check_filled));
}

Flag Flags::add(const std::string& names, std::int64_t& target, const std::string& help) {
  return Flag(app_->add_option(names, target, help)->check(check_filled));
}

Flag Flags::add(const std::string& names, std::uint64_t& target, const std::string& help) {
  return Flag(app_->add_option(names, target, help)->check(check_filled));
}

Flag Flags::add(const std::string& names, float& target, const std::string& help) {
  CLI::Option* const option = app_->add_option(names, target, help);
  return Flag(option->check(check_filled)->check(check_finite<float>));
}

Flag Flags::add(const std::string& names, double& target, const std::string& help) {
  CLI::Option* const option = app_->add_option(names, target, help);
  return Flag(option->check(check_filled)->check(check_finite<double>));
}

Flag Flags::add(const std::string& names, std::optional<std::string>& target,
                const std::string& help) {
  return Flag(app_->add_option(names, target, help));
}

Flag Flags::add(const std::string& names, std::optional<std::int64_t>& target,
                const std::string& help) {
  return Flag(app_->add_option(names, target, help)->check(check_filled));
}

Flag Flags::add(const std::string& names, std::vector<std::string>& target,
                const std::string& help) {
  return Flag(app_->add_option(names, target, help)->check(check_filled));
}

Flag Flags::add(const std::string& names, bool& target, const std::string& help) {
  return Flag(app_->add_flag(names, target, help));
}

bool Flags::parsed() const {
  return app_->parsed();
}

std::int64_t Flags::count(const std::string& name) const {
  return static_cast<std::int64_t>(app_->count(name));
}

CommandLine::CommandLine(const ProgramText& text)
    : app_(std::make_unique<CLI::App>(text.description, text.name)), flags_(app_.get()) {
  if (!text.version.empty()) app_->set_version_flag("--version", text.version);
}

CommandLine::~CommandLine() = default;

void CommandLine::require_command() {
  app_->require_subcommand(1);
}

Result<bool> CommandLine::parse(std::span<const char* const> argv) {
  for (const char* const word : argv) {
    const std::string flag = flag_without_value(*app_, word);
    if (!flag.empty()) return Error{ErrorCode::kInvalidArgument, flag + ": is empty"};
  }
  const bool wants_command = app_->get_require_subcommand_min() > 0;
  if (wants_command && argv.size() > 1 && argv[1][0] != '-' && !is_command(*app_, argv[1])) {
    return Error{ErrorCode::kInvalidArgument, "'" + printable(argv[1]) + "' is no command"};
  }
  try {
    app_->parse(static_cast<int>(argv.size()), argv.data());
  } catch (const CLI::Success& wanted) {  // --help, --version
    app_->exit(wanted);
    return false;
  } catch (const CLI::ParseError& error) {
    return Error{ErrorCode::kInvalidArgument, error.what()};
  }
  return true;
}

}  // namespace stemma
