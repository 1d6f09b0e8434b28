// Arena: owns every value that one rendering makes, and counts what the rendering may still use.
//
// Thread:     one rendering, one arena.
// Memory:     at most bytes_max, counted, plus one operation's scratch; freed as a whole.
// Cost:       amortised O(1) an object.
// Not here:   the meaning of values (value.h, operators.h).
//
// A rendering that exceeds a limit is not stopped in the middle of an operation: the arena notes
// which limit it was and gives back an empty value, and the evaluator, which looks after every
// step, ends the rendering.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "template/value.h"

namespace stemma::jinja {

// What one rendering may use. The template is part of a model's files and the messages come from a
// request: neither is trusted with the server's memory or time.
struct RenderLimits {
  std::size_t bytes_max = std::size_t{256} << 20;        // of values made on the way
  std::size_t output_bytes_max = std::size_t{64} << 20;  // of the rendered text
  std::int64_t steps_max = 10'000'000;  // expressions and statements evaluated, values compared
  int nesting_max = 1000;  // of these in each other, also through macros that call themselves
};

class Arena {
 public:
  explicit Arena(const RenderLimits& limits) : limits_(limits) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  Value text(std::string text);
  Value sequence(Kind kind, std::vector<Value> items);
  Value mapping(std::vector<MappingEntry> entries);
  // One whose keys are these names.
  Value mapping(std::span<const NamedValue> named);
  Namespace* name_space();
  Loop* loop(std::span<const Value> items);
  const Macro* macro(const Macro& macro);

  // Counts work that is not one step: the values that a comparison walks, the bytes that a search
  // reads.
  void charge_steps(std::int64_t steps);
  void charge_bytes(std::size_t bytes);
  // Counts what is being evaluated at a time.
  class Level {
   public:
    explicit Level(Arena& arena) : arena_(arena) {
      if (++arena_.nesting_ > arena_.limits_.nesting_max) arena_.exceed("nesting");
    }
    ~Level() { --arena_.nesting_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Arena& arena_;
  };
  std::size_t bytes_left() const { return limits_.bytes_max - used_bytes_; }

  // Which limit was exceeded, for a person; empty while none was.
  std::string_view exceeded() const { return exceeded_; }
  const RenderLimits& limits() const { return limits_; }

 private:
  // Notes the first limit that was exceeded.
  void exceed(std::string_view what);

  RenderLimits limits_;
  std::size_t used_bytes_ = 0;
  std::int64_t used_steps_ = 0;
  int nesting_ = 0;
  std::string_view exceeded_;
  std::deque<std::string> texts_;
  std::deque<List> lists_;
  std::deque<Mapping> mappings_;
  std::deque<Namespace> namespaces_;
  std::deque<Loop> loops_;
  std::deque<Macro> macros_;
};

// Text under construction that stops growing at the arena's limit.
class TextBuilder {
 public:
  explicit TextBuilder(Arena& arena) : arena_(arena) {}
  void append(std::string_view part);
  // The text as a value; an empty one if the limit was exceeded.
  Value finish();

 private:
  Arena& arena_;
  std::string text_;
};

}  // namespace stemma::jinja
