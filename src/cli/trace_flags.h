// TraceFlags: the flags that say which traces a command reads, and how.
//
// Thread:     main.
// Memory:     the flags, and a tokenizer if one is named.
// Cost:       loading the tokenizer, once.
// Not here:   reading (replay/trace_merge), what is done with the requests (each command).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/flags.h"
#include "cli/written_files.h"
#include "model/tokenizer.h"
#include "replay/trace_merge.h"
#include "stemma/result.h"

namespace stemma {

struct TraceFlags {
  std::vector<std::string> traces;
  std::string format = "mooncake";
  std::int64_t page_tokens = 0;  // 0: the format's own
  std::string tokenizer;         // a model's directory, or empty
  std::int64_t reorder_requests = 1;
  bool skip_bad = false;

  // Those that are read.
  std::vector<NamedFile> files() const;
};

// --trace (several with commas, or given several times), --format, --page-tokens, --tokenizer,
// --reorder-requests, --skip-bad. `flags` must outlive the command. Returns --trace, which is
// required unless the command says otherwise.
Flag add_trace_flags(Flags& command, TraceFlags& flags);

// Opens the traces that flags name, as often as they are to be read.
class TraceSource {
 public:
  // Checks the flags and loads the tokenizer. The error names the flag.
  static Result<TraceSource> open(const TraceFlags& flags);

  // All traces as one, from the beginning. Must not outlive this.
  Result<TraceMerge> read() const;
  // Whether that can be had again: a pipe gives its bytes once. The error names the flag.
  Status check_rereadable() const;

 private:
  TraceSource() = default;

  std::vector<std::string> paths_;
  TraceOptions options_;
  std::optional<Tokenizer> tokenizer_;
};

}  // namespace stemma
