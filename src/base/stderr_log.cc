#include "base/stderr_log.h"

#include <spdlog/sinks/stdout_color_sinks.h>

#include <optional>

namespace stemma {

namespace {

using StderrSink = spdlog::sinks::stderr_color_sink_st;

// There before any thread is, so that no fork() finds one amid making it.
struct StderrLog {
  std::mutex mutex;
  std::optional<StderrSink> text;  // each from its first line on
  std::optional<StderrSink> json;
};
constinit StderrLog stderr_log;

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

StderrSink& made(std::optional<StderrSink>& sink, const char* pattern) {
  if (!sink.has_value()) sink.emplace().set_pattern(pattern);
  return *sink;
}

}  // namespace

void write_to_stderr(LogLevel level, std::string_view line) {
  const std::lock_guard lock(stderr_log.mutex);
  StderrSink& sink = line.starts_with('{') ? made(stderr_log.json, "%v")
                                           : made(stderr_log.text, "%H:%M:%S.%e %^%l%$ %v");
  sink.log({"stemma", spdlog_level(level), spdlog::string_view_t(line.data(), line.size())});
}

std::mutex& stderr_log_mutex() noexcept {
  return stderr_log.mutex;
}

}  // namespace stemma
