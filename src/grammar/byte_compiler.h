// ByteCompiler: from the parts of a ByteGrammar to the steps of a program.
//
// Thread:     one use, one thread.
// Memory:     the steps, and 8 bytes a rule and step while rules are checked.
// Cost:       linear in the parts and the steps.
// Not here:   what parts there are (byte_grammar).
#pragma once

#include <cstdint>
#include <vector>

#include "grammar/byte_grammar.h"
#include "grammar/byte_texts.h"
#include "stemma/result.h"

namespace stemma {

class ByteCompiler {
 public:
  // `grammar` must outlive this.
  ByteCompiler(const ByteGrammar& grammar, ByteGrammar::Part start)
      : grammar_(grammar), start_(start), texts_(grammar, start) {}

  // Once.
  Result<ByteProgram> compile();

 private:
  using Part = ByteGrammar::Part;

  // Each gives the step at which a part begins that goes on at `next`. REQUIRES: it has a text.
  std::int32_t emit(Part part, std::int32_t next);
  std::int32_t emit_either(const std::vector<Part>& parts, std::int32_t next);
  std::int32_t emit_repeated(const ByteGrammar::Node& node, std::int32_t next);
  std::int32_t add(const ByteStep& step);
  bool full() const { return steps_.size() > ByteGrammar::kStepsMax; }

  void resolve_calls();
  std::vector<bool> rules_that_may_be_empty() const;
  bool begins_with_itself() const;

  const ByteGrammar& grammar_;
  const Part start_;
  const ByteTexts texts_;
  std::vector<ByteStep> steps_;
  std::vector<std::int32_t> entries_;  // of rules; -1: nobody calls it
};

}  // namespace stemma
