// CaptureWriter: Stemma's own traces: what requests asked of the cache, without their text.
//
// JSON lines. The first says what the file is:
//   {"format": "stemma-capture", "version": 1, "page_size": TOKENS}
// each other one is a request, in the order in which they were submitted:
//   {"timestamp_ms": since the first came, "namespace": NAME, "input_tokens", "output_tokens",
//    "page_hashes": [NAME, ...], "output_page_hashes": [NAME, ...], "finish_reason", "priority"}
// page_hashes are the pages that the cache was asked for, output_page_hashes those that lay behind
// them when the request had ended. One token of a prompt is always computed, so a prompt that ends
// with a page did not ask for it.
//
// What the file gives away: lengths, times, how requests ended, and which requests began alike, for
// how many pages. Not what they said: names are salted (capture_hashes), and the salt is kept in
// memory only and forgotten with the writer. Without a salt whoever has the file could guess a
// prompt, hash it and see whether it was asked. For the same reason pages of two captures cannot be
// compared.
//
// Thread:     one thread a writer.
// Memory:     one line.
// Cost:       about 0.4 us a page of 16 tokens.
// Not here:   reading it (capture_parser), which requests are captured (cli/).
#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "replay/capture_hashes.h"
#include "stemma/ids.h"
#include "stemma/prefix_cache.h"
#include "stemma/result.h"
#include "stemma/sequence.h"

namespace stemma {

// One request that has ended. Its tokens are only read.
struct CapturedRequest {
  double timestamp_ms = 0;
  const NamespaceDigest& namespace_digest;
  std::span<const TokenId> tokens;  // of the prompt, then of the output
  std::int64_t prompt_tokens = 0;   // at least one
  std::string_view finish_reason;   // a FinishReason's name
  std::int32_t priority = 0;
  std::optional<SharedPrefix> shared_prefix = std::nullopt;  // of whole pages
};

class CaptureWriter {
 public:
  // Makes or empties the file. kNotFound if there is no such directory, kIo if it cannot be
  // written. REQUIRES: page_size >= 1.
  static Result<CaptureWriter> create(const std::string& path, std::int64_t page_size,
                                      const CaptureSalt& salt);

  // Appends a line. kIo if it cannot be written.
  // REQUIRES: timestamp_ms is not below that of the request before.
  Status write(const CapturedRequest& request);

  // Everything written is in the file afterwards, or the error says why not.
  Status flush();
  // The same; nothing is written behind it.
  Status close();

 private:
  CaptureWriter(std::string path, std::ofstream file, std::int64_t page_size,
                const CaptureSalt& salt);
  Status write_line(const std::string& line);
  Status written() const;

  std::string path_;
  std::ofstream file_;
  std::int64_t page_size_;
  CaptureHashes hashes_;
};

}  // namespace stemma
