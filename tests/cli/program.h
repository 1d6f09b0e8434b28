// Runs build/<preset>/stemma as a person would, and gives back what it printed and how it ended.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace stemma {

struct ProgramRun {
  int exit_code = -1;
  std::string out;
  std::string err;

  // Standard output as one JSON object a line.
  std::vector<nlohmann::json> lines() const {
    std::vector<nlohmann::json> parsed;
    std::size_t begin = 0;
    while (begin < out.size()) {
      const std::size_t end = out.find('\n', begin);
      parsed.push_back(nlohmann::json::parse(out.substr(begin, end - begin)));
      if (end == std::string::npos) break;
      begin = end + 1;
    }
    return parsed;
  }
};

inline std::string read_all(std::FILE* file) {
  std::string text;
  std::array<char, 4096> piece;
  for (std::size_t n = 0; (n = std::fread(piece.data(), 1, piece.size(), file)) > 0;) {
    text.append(piece.data(), n);
  }
  return text;
}

// `arguments` go through the shell: quote what needs it. `launcher` starts the program, if there is
// one.
inline ProgramRun run_stemma(const std::string& arguments, const std::string& launcher = {}) {
  ProgramRun run;
  const std::string errors = std::string(std::tmpnam(nullptr)) + ".stderr";
  const std::string command =
      launcher + " " + std::string(STEMMA_BINARY_DIR) + "/stemma " + arguments + " 2>" + errors;
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return run;
  run.out = read_all(pipe);
  const int status = pclose(pipe);
  run.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (std::FILE* file = std::fopen(errors.c_str(), "r"); file != nullptr) {
    run.err = read_all(file);
    std::fclose(file);
  }
  std::remove(errors.c_str());
  return run;
}

}  // namespace stemma
