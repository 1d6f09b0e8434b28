// RequestCapture: what an engine was asked for, written down for replays as it goes on (the format:
// replay/capture_writer.h).
//
// The engine's thread hands requests over and waits for nothing. A thread of its own puts those
// that have ended into the order in which they came, and writes them. A file that cannot be
// written, or not fast enough, costs lines of the capture and nothing else.
//
// Thread:     came and ended on the engine's, the others on the owner's.
// Memory:     kTokensMax tokens that wait to be written, and as many that wait for a request before
//             them; some 200 bytes a request that has not ended.
// Cost:       on the engine's thread a lock a request.
// Not here:   names of pages (replay/capture_hashes), reading it (replay/capture_parser).
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cli/capture_order.h"
#include "replay/capture_writer.h"
#include "stemma/request.h"
#include "stemma/result.h"

namespace stemma {

class RequestCapture final : public RequestObserver {
 public:
  static constexpr std::int64_t kTokensMax = std::int64_t{1} << 24;  // 64 MiB of them

  // REQUIRES: page_size >= 1.
  explicit RequestCapture(std::int64_t page_size) : page_size_(page_size), order_(kTokensMax) {}
  ~RequestCapture() override;
  RequestCapture(const RequestCapture&) = delete;
  RequestCapture& operator=(const RequestCapture&) = delete;

  // Makes or empties the file. kNotFound if there is no such directory, kIo if it cannot be
  // written. Until then requests are passed over. REQUIRES: once.
  Status open(const std::string& path);

  void came(RequestId request, std::int64_t submitted_us) override;
  void ended(EndedRequest&& request) override;

  // What has ended is in the file afterwards, or the error says what could not be written.
  // REQUIRES: the engine tells nothing any more.
  Status close();

  // Requests that ended and are not in the file, though that could be written. After close.
  std::int64_t left_out() const noexcept { return order_.left_out(); }

 private:
  // That one came (submitted_us), ended, or ended and nothing is kept of it.
  struct Told {
    RequestId request;
    std::optional<std::int64_t> submitted_us;
    std::optional<EndedRequest> ended;
  };

  void tell(Told&& told, std::int64_t tokens);
  void run();
  void take(Told&& told);
  void write_due();

  const std::int64_t page_size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Told> told_;        // what the thread has not taken yet
  std::int64_t told_tokens_ = 0;  // of these
  bool is_open_ = false;
  bool closing_ = false;
  // The thread's, and its owner's where there is none.
  CaptureOrder order_;
  std::optional<CaptureWriter> writer_;
  std::optional<std::int64_t> begin_us_;  // of the first request
  Status status_;
  std::thread thread_;
};

}  // namespace stemma
