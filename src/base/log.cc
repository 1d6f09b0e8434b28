#include "stemma/log.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/stderr_log.h"
#include "base/wall_clock.h"

namespace stemma {

namespace {

std::string_view level_name(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "error";
}

struct LogState {
  std::mutex turn;   // held while the sink runs: one line at a time, in their order
  std::mutex mutex;  // of `sink`, for moments in which nothing of others is called
  LogSink sink = write_to_stderr;
  std::atomic<LogLevel> threshold = LogLevel::kInfo;
  std::atomic<LogFormat> format = LogFormat::kText;
};

LogState& state() {
  static LogState the_state;
  return the_state;
}

// Whether this thread is in the sink, which may then do what would wait for its own end.
thread_local bool in_sink = false;

// A fork waits for our own locks, which nobody holds for long, but for no sink of others: the
// thread that forks may have what that waits for, as Python's interpreter lock.
void before_fork() {
  state().mutex.lock();
  stderr_log_mutex().lock();
}

void after_fork_in_parent() {
  stderr_log_mutex().unlock();
  state().mutex.unlock();
}

// The turn may be a thread's that is not here.
void after_fork_in_child() {
  after_fork_in_parent();
  if (!in_sink) std::construct_at(&state().turn);
}

// Before any thread is there.
[[maybe_unused]] const int ready_to_fork =
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);

// The length of the UTF-8 character that begins `text`, or 0: none does. Surrogates, overlong forms
// and what is above U+10FFFF are none.
std::size_t character_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t bytes = first < 0xC2   ? 0
                            : first < 0xE0 ? 2
                            : first < 0xF0 ? 3
                            : first < 0xF5 ? 4
                                           : 0;
  if (bytes == 0 || text.size() < bytes) return 0;
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const bool overlong = (first == 0xE0 && byte(1) < 0xA0) || (first == 0xF0 && byte(1) < 0x90);
  const bool beyond = (first == 0xED && byte(1) > 0x9F) || (first == 0xF4 && byte(1) > 0x8F);
  return overlong || beyond ? 0 : bytes;
}

// The code of a character that breaks a line or talks to a terminal: of C0, DEL, of C1, Unicode's
// separators of lines and of paragraphs. Clients choose parts of what is logged.
std::optional<unsigned> control_code(std::string_view character) {
  const unsigned first = static_cast<unsigned char>(character[0]);
  if (first < 0x20 || first == 0x7F) return first;
  const unsigned second = character.size() == 2 ? static_cast<unsigned char>(character[1]) : 0xFF;
  if (first == 0xC2 && second < 0xA0) return second;
  if (character == "\xE2\x80\xA8") return 0x2028;
  if (character == "\xE2\x80\xA9") return 0x2029;
  return std::nullopt;
}

// Calls `take` with each character of `text` and whether it is one: what is not UTF-8 comes byte by
// byte.
template <typename Take>
void for_each_character(std::string_view text, Take take) {
  while (!text.empty()) {
    const std::size_t bytes = character_bytes(text);
    const std::string_view character = text.substr(0, std::max<std::size_t>(bytes, 1));
    take(character, bytes > 0);
    text.remove_prefix(character.size());
  }
}

bool is_plain(std::string_view value) {
  bool plain = !value.empty() && value.find_first_of(" \"=") == std::string_view::npos;
  for_each_character(value, [&](std::string_view character, bool is_one) {
    plain = plain && is_one && !control_code(character).has_value();
  });
  return plain;
}

// A value with a space, a quote or a line break is quoted, so that a line stays one line of fields.
// So is one with bytes written as \xNN, which no backslash of its own looks like there.
void append_value(std::string& line, std::string_view value) {
  if (is_plain(value)) {
    line += value;
    return;
  }
  line += '"';
  for_each_character(value, [&](std::string_view character, bool is_one) {
    const char first = character[0];
    if (first == '\n' || first == '\r' || first == '\t') {
      line += ' ';
    } else if (!is_one || control_code(character).has_value()) {
      for (const char c : character) {
        line += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
      }
    } else {
      if (first == '"' || first == '\\') line += '\\';
      line += character;
    }
  });
  line += '"';
}

std::string text_line(std::string_view event, std::initializer_list<LogField> fields) {
  std::string line(event);
  for (const LogField& field : fields) {
    line += ' ';
    line += field.key;
    line += '=';
    append_value(line, field.value);
  }
  return line;
}

void append_json_text(std::string& line, std::string_view text) {
  line += '"';
  for_each_character(text, [&](std::string_view character, bool is_one) {
    if (!is_one) {
      line += "\\ufffd";
    } else if (const auto code = control_code(character)) {
      line += fmt::format("\\u{:04x}", *code);
    } else {
      if (character == "\"" || character == "\\") line += '\\';
      line += character;
    }
  });
  line += '"';
}

std::string json_line(LogLevel level, std::string_view event,
                      std::initializer_list<LogField> fields) {
  std::string line = fmt::format(R"({{"time":{:.6f},"level":"{}","event":)", wall_clock_seconds(),
                                 level_name(level));
  append_json_text(line, event);
  for (const LogField& field : fields) {
    line += ',';
    append_json_text(line, field.key);
    line += ':';
    if (field.is_number) {
      line += field.value;
    } else {
      append_json_text(line, field.value);
    }
  }
  return line + '}';
}

LogSink current_sink() {
  const std::lock_guard lock(state().mutex);
  return state().sink;
}

}  // namespace

void set_log_sink(LogSink sink) {
  std::unique_lock turn(state().turn, std::defer_lock);
  if (!in_sink) turn.lock();
  const std::lock_guard lock(state().mutex);
  state().sink.swap(sink);
}

void set_log_format(LogFormat format) {
  state().format.store(format, std::memory_order_relaxed);
}

void set_log_level(LogLevel level) {
  state().threshold.store(level, std::memory_order_relaxed);
}

bool log_enabled(LogLevel level) noexcept {
  return level >= state().threshold.load(std::memory_order_relaxed);
}

void log_event(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  if (in_sink) return;
  const bool json = state().format.load(std::memory_order_relaxed) == LogFormat::kJson;
  const std::string line = json ? json_line(level, event, fields) : text_line(event, fields);
  const std::lock_guard turn(state().turn);
  const LogSink sink = current_sink();  // it may set another one
  if (!sink) return;
  in_sink = true;
  sink(level, line);
  in_sink = false;
}

}  // namespace stemma
