// The real traces of ../shared/data/traces, for tests: whole, in the order of time.
//
// Thread:     tests.
// Memory:     the requests.
// Cost:       some 100 ms a trace.
// Not here:   what they are good for (../shared/data/traces/README.md).
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/temp_directory.h"
#include "replay/trace_merge.h"

namespace stemma {

// `checkout` is STEMMA_SOURCE_DIR here and below.
inline std::string shared_trace(const std::string& checkout, const std::string& name) {
  return checkout + "/../shared/data/traces/" + name;
}

inline std::vector<TraceRequest> read_all(
    const std::vector<std::string>& paths, const TraceOptions& options,
    std::size_t requests_max = std::numeric_limits<std::size_t>::max()) {
  TraceMerge merge = *TraceMerge::open(paths, options);
  std::vector<TraceRequest> requests;
  for (TraceRequest request; requests.size() < requests_max && *merge.next(request);) {
    requests.push_back(request);
  }
  return requests;
}

// An hour of a chat service, or its first requests; nullopt where it is absent.
inline std::optional<std::vector<TraceRequest>> try_read_conversations(
    const std::string& checkout,
    std::size_t requests_max = std::numeric_limits<std::size_t>::max()) {
  const std::string path = shared_trace(checkout, "conversation_trace.jsonl");
  if (!std::filesystem::exists(path)) return std::nullopt;
  TraceOptions options;
  options.format = *find_trace_format("mooncake");
  return read_all({path}, options, requests_max);
}

// The files of an archive of agents' runs, unpacked into `folder`; empty where it is absent.
inline std::vector<std::string> unpack_agent_prompts(const std::string& checkout,
                                                     const TempDirectory& folder) {
  const std::string archive = shared_trace(checkout, "agent_prompts.tar.zst");
  if (!std::filesystem::exists(archive)) return {};
  const std::string unpack = "zstd -dc '" + archive + "' | tar -x -C '" + folder.path() + "'";
  if (std::system(unpack.c_str()) != 0) return {};
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path())) {
    if (entry.path().extension() == ".jsonl") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

// They were written as requests ended: a little out of the order of time.
inline TraceOptions agent_prompts_options() {
  TraceOptions options;
  options.format = *find_trace_format("prompts");
  options.reorder_requests = 64;
  return options;
}

// All of them; nullopt where they are absent.
inline std::optional<std::vector<TraceRequest>> try_read_agent_prompts(
    const std::string& checkout) {
  const TempDirectory folder;
  const std::vector<std::string> paths = unpack_agent_prompts(checkout, folder);
  if (paths.empty()) return std::nullopt;
  return read_all(paths, agent_prompts_options());
}

}  // namespace stemma
