// Flags: what a program and its commands can be told on their command line: each flag's names, the
// variable that takes its value, and the line that --help has for it.
//
// CLI11 does it: names are written, values read and errors worded as CLI11 has it. Its header is
// large, and every source that includes it compiles it anew; so only flags.cc does.
//
// Thread:     main.
// Memory:     the CommandLine's: a few strings a flag. Flags and Flag point into it.
// Cost:       none.
// Not here:   which flags there are (x_command, x_flags), what several of them together may not say
//             (the commands' run).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stemma/result.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace stemma {

// One flag, or one argument without a name. A small handle: copies are the same flag. Must not
// outlive the CommandLine. What changes it returns it, to be chained.
class Flag {
 public:
  // --help shows the variable's value of now as the default.
  Flag capture_default_str();
  Flag required(bool wanted = true);
  // Replaces what --help says.
  Flag description(const std::string& help);
  // Values are cut at this character too. REQUIRES: the variable is a vector.
  Flag delimiter(char between);
  // Refuses numbers below `least` and above `most`.
  Flag check_range(int least, int most);
  Flag check_range(std::int64_t least, std::int64_t most);
  Flag check_range(double least, double most);
  // Refuses what `find_wrong` says something against.
  Flag check(Status (*find_wrong)(std::string_view value));
  // Refuses everything but these.
  Flag check_member(const std::vector<std::string>& values);
  // Is refused where the flag of that name is not given. REQUIRES: it was added before.
  Flag needs(const std::string& name);

  // How many values were given. REQUIRES: the command line was parsed.
  std::int64_t count() const;
  // "--timing"; the first of its names, or that of an argument.
  std::string get_name() const;

 private:
  friend class Flags;
  explicit Flag(CLI::Option* option) : option_(option) {}

  CLI::Option* option_;
};

// The flags of the program, of a command or of a group. A small handle as Flag is.
class Flags {
 public:
  // A command of this program, with flags of its own.
  Flags add_command(const std::string& name, const std::string& description);
  // Flags of this command that --help shows together.
  Flags add_group(const std::string& name, const std::string& description);

  // Adds a flag ("--name", several with commas) or an argument ("name"). Parsing writes its value
  // into `target`, which must outlive that, and refuses an empty one, but for an optional text, and
  // real numbers that are not finite. REQUIRES: none of the names is taken.
  Flag add(const std::string& names, std::string& target, const std::string& help);
  Flag add(const std::string& names, int& target, const std::string& help);
  Flag add(const std::string& names, std::int64_t& target, const std::string& help);
  Flag add(const std::string& names, std::uint64_t& target, const std::string& help);
  Flag add(const std::string& names, float& target, const std::string& help);
  Flag add(const std::string& names, double& target, const std::string& help);
  Flag add(const std::string& names, std::optional<std::string>& target, const std::string& help);
  Flag add(const std::string& names, std::optional<std::int64_t>& target, const std::string& help);
  // Takes several values, and may be given several times. What `target` held is replaced.
  Flag add(const std::string& names, std::vector<std::string>& target, const std::string& help);
  // A switch, without a value: sets `target`; "--name{false}" clears it.
  Flag add(const std::string& names, bool& target, const std::string& help);

  // Whether this command was typed. REQUIRES: the command line was parsed.
  bool parsed() const;
  // Flag::count of the flag of that name. REQUIRES: there is one.
  std::int64_t count(const std::string& name) const;

 private:
  friend class CommandLine;
  explicit Flags(CLI::App* app) : app_(app) {}

  CLI::App* app_;
};

// What --help and --version say of a program.
struct ProgramText {
  std::string name;
  std::string description = {};
  std::string version = {};  // empty: there is no --version
};

// The command line of a program: owns all its commands and flags, and reads what was typed.
class CommandLine {
 public:
  explicit CommandLine(const ProgramText& text);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // The program's own, to which commands add themselves.
  Flags& flags() { return flags_; }
  // From now on exactly one command must be typed.
  void require_command();

  // Reads what was typed, the program's name first, into the flags' variables. False: --help or
  // --version was asked for and stands on standard output. kInvalidArgument says what is wrong with
  // the line, in one line; some of the variables may be written then. "--name=" of a flag is one
  // without a value, wherever it stands.
  Result<bool> parse(std::span<const char* const> argv);

 private:
  std::unique_ptr<CLI::App> app_;
  Flags flags_;
};

}  // namespace stemma
