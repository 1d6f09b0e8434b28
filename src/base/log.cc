#include "stemma/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <mutex>
#include <utility>

namespace stemma {

namespace {

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

void write_to_stderr(LogLevel level, std::string_view line) {
  static const auto logger = [] {
    auto made = spdlog::stderr_color_mt("stemma");
    made->set_pattern("%H:%M:%S.%e %^%l%$ %v");
    made->set_level(spdlog::level::debug);
    return made;
  }();
  logger->log(spdlog_level(level), spdlog::string_view_t(line.data(), line.size()));
}

struct LogState {
  std::mutex mutex;
  LogSink sink = write_to_stderr;
  std::atomic<LogLevel> threshold = LogLevel::kInfo;
};

LogState& state() {
  static LogState the_state;
  return the_state;
}

// A value with a space, a quote or a line break is quoted, so that a line stays one line of fields.
void append_value(std::string& line, std::string_view value) {
  if (value.find_first_of(" \"\n\r\t=") == std::string_view::npos && !value.empty()) {
    line += value;
    return;
  }
  line += '"';
  for (const char c : value) {
    if (c == '"' || c == '\\') line += '\\';
    line += (c == '\n' || c == '\r' || c == '\t') ? ' ' : c;
  }
  line += '"';
}

}  // namespace

void set_log_sink(LogSink sink) {
  const std::lock_guard lock(state().mutex);
  state().sink = std::move(sink);
}

void set_log_level(LogLevel level) {
  state().threshold.store(level, std::memory_order_relaxed);
}

bool log_enabled(LogLevel level) noexcept {
  return level >= state().threshold.load(std::memory_order_relaxed);
}

void log_event(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  std::string line(event);
  for (const LogField& field : fields) {
    line += ' ';
    line += field.key;
    line += '=';
    append_value(line, field.value);
  }
  const std::lock_guard lock(state().mutex);
  if (state().sink) state().sink(level, line);
}

}  // namespace stemma
