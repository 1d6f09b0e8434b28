#include "cli/trace_flags.h"

#include <filesystem>
#include <system_error>
#include <utility>

namespace stemma {

Flag add_trace_flags(Flags& command, TraceFlags& flags) {
  const Flag trace =
      command
          .add("--trace", flags.traces, "trace file; several with commas are read as one, by time")
          .delimiter(',')
          .required();
  command
      .add("--format", flags.format, "mooncake qwen-bailian block-hash prompts kv-events capture")
      .capture_default_str();
  command
      .add("--page-tokens", flags.page_tokens,
           "tokens a page, where the format leaves it open; 0: the format's own")
      .capture_default_str();
  command.add("--tokenizer", flags.tokenizer,
              "model directory whose tokenizer.json cuts prompts into tokens, not characters");
  command
      .add("--reorder-requests", flags.reorder_requests,
           "so many requests of a file may be out of the order of time")
      .capture_default_str();
  command.add("--skip-bad", flags.skip_bad, "leave out wrong lines and say how many there were");
  return trace;
}

std::vector<NamedFile> TraceFlags::files() const {
  std::vector<NamedFile> files = files_of_model("--tokenizer", tokenizer);
  for (const std::string& trace : traces) files.push_back({"--trace", trace});
  return files;
}

Result<TraceSource> TraceSource::open(const TraceFlags& flags) {
  TraceSource source;
  source.paths_ = flags.traces;
  STEMMA_ASSIGN_OR_RETURN(source.options_.format, find_trace_format(flags.format));
  source.options_.page_tokens = flags.page_tokens;
  source.options_.reorder_requests = flags.reorder_requests;
  source.options_.skip_bad = flags.skip_bad;
  if (!flags.tokenizer.empty()) {
    STEMMA_ASSIGN_OR_RETURN(source.tokenizer_, Tokenizer::load(flags.tokenizer));
  }
  return source;
}

// A TraceSource may have moved since it was opened: the tokenizer's address is taken here.
Result<TraceMerge> TraceSource::read() const {
  TraceOptions options = options_;
  options.tokenizer_or_null = tokenizer_.has_value() ? &*tokenizer_ : nullptr;
  return TraceMerge::open(paths_, options);
}

Status TraceSource::check_rereadable() const {
  for (const std::string& path : paths_) {
    std::error_code unknown;
    if (std::filesystem::is_regular_file(path, unknown)) continue;
    return Error{ErrorCode::kInvalidArgument,
                 "--trace: " + path +
                     " is no regular file, and would be read more than once: for an unlimited "
                     "capacity, or for several policies or capacities of --mode timed"};
  }
  return {};
}

}  // namespace stemma
