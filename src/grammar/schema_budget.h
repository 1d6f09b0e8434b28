// SchemaBudget: how much of schemas may be copied while one is read.
//
// A schema may stand for others many times over, and each that is made of several is a copy of
// what it is made of. One budget is for all of a schema, so that neither the time nor the memory
// of reading it grows beyond a few times what was sent.
//
// Thread:     one reader, one thread.
// Memory:     none.
// Cost:       a look at what is to be copied.
// Not here:   the parts of the grammar that comes of it (byte_grammar, which has its own bounds).
#pragma once

#include <cstddef>

#include "template/chat_template.h"

namespace stemma {

class SchemaBudget {
 public:
  // Of a value, and of so many bytes of a text or a name.
  static constexpr std::size_t kTextBytes = 16;
  static constexpr std::size_t kUnitsMin = std::size_t{1} << 17;
  static constexpr std::size_t kTimes = 4;  // what was sent

  // For `root` and all that it stands for.
  explicit SchemaBudget(const TemplateJson& root);

  // Whether so many units, or a copy of that, are left, which then are taken. Once there are not,
  // there is nothing left.
  bool take(std::size_t units);
  bool take(const TemplateJson& copied) { return left_ > 0 && take(units_of(copied)); }

  std::size_t taken() const { return units_ - left_; }
  std::size_t units() const { return units_; }
  static std::size_t units_of(const TemplateJson& json);

 private:
  std::size_t units_ = 0;
  std::size_t left_ = 0;
};

}  // namespace stemma
