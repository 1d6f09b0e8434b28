// Log: events with fields, for people and for machines.
//
//   STEMMA_LOG(kWarning, "engine.runner_failed", kv("requests", n), kv("error", to_string(error)));
//
// An event has a name (room.what_happened) and key=value fields; no prose formats, nothing per
// token. As JSON it is one object a line, with the time of day.
//
// Thread:     any; the sink is called under a lock.
// Memory:     one line while it is written; nothing at all below the threshold.
// Cost:       a relaxed load when the level is off.
// Not here:   metrics (counters), results of commands (they go to standard output).
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>

namespace stemma {

// How much an event matters; events below the threshold are dropped.
enum class LogLevel : std::uint8_t { kDebug, kInfo, kWarning, kError };

// How a line is written.
enum class LogFormat : std::uint8_t {
  kText,  // pool.opened pages=64 dtype=bf16
  kJson,  // {"time":1763812345.678901,"level":"info","event":"pool.opened","pages":64,...}
};

// One key=value of an event. "time", "level" and "event" are no keys of fields.
struct LogField {
  std::string_view key;
  std::string value;
  bool is_number = false;  // `value` is one as JSON writes it
};

// A field of text.
inline LogField kv(std::string_view key, std::string_view value) {
  return {key, std::string(value)};
}
// A field of a number.
template <typename Number>
  requires std::integral<Number> || std::floating_point<Number>
LogField kv(std::string_view key, Number value) {
  if constexpr (std::floating_point<Number>) {
    return {key, std::to_string(value), std::isfinite(value)};
  } else {
    return {key, std::to_string(value), true};
  }
}

// Receives each event from the threshold on as a line without its end, one at a time; logs nothing.
using LogSink = std::function<void(LogLevel, std::string_view line)>;

// Replaces the sink (standard error, through spdlog, until then). An empty sink drops everything.
void set_log_sink(LogSink sink);

// How lines are written from now on. Starts as kText.
void set_log_format(LogFormat format);

// Events below `level` are dropped before they are formatted. Starts at kInfo.
void set_log_level(LogLevel level);
// Whether an event of this level would be written.
bool log_enabled(LogLevel level) noexcept;

// Writes one event whatever the threshold says; STEMMA_LOG asks first.
void log_event(LogLevel level, std::string_view event, std::initializer_list<LogField> fields);

}  // namespace stemma

#define STEMMA_LOG(level, event, ...)                                       \
  do {                                                                      \
    if (::stemma::log_enabled(::stemma::LogLevel::level)) {                 \
      ::stemma::log_event(::stemma::LogLevel::level, event, {__VA_ARGS__}); \
    }                                                                       \
  } while (false)
