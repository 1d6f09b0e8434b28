#include "cli/request_capture.h"

#include <utility>

#include "stemma/log.h"

namespace stemma {

RequestCapture::~RequestCapture() {
  static_cast<void>(close());
}

Status RequestCapture::open(const std::string& path) {
  STEMMA_ASSIGN_OR_RETURN(const CaptureSalt salt, make_capture_salt());
  STEMMA_ASSIGN_OR_RETURN(CaptureWriter writer, CaptureWriter::create(path, page_size_, salt));
  writer_.emplace(std::move(writer));
  thread_ = std::thread([this] { run(); });
  const std::lock_guard lock(mutex_);
  is_open_ = true;
  return {};
}

void RequestCapture::came(RequestId request, std::int64_t submitted_us) {
  tell({.request = request, .submitted_us = submitted_us, .ended = {}}, 0);
}

void RequestCapture::ended(EndedRequest&& request) {
  const auto tokens = static_cast<std::int64_t>(request.tokens.capacity());
  Told told = {.request = request.request, .submitted_us = {}, .ended = {}};
  told.ended = std::move(request);
  tell(std::move(told), tokens);
}

// Where the thread is behind, tokens are not kept for it.
void RequestCapture::tell(Told&& told, std::int64_t tokens) {
  {
    const std::lock_guard lock(mutex_);
    if (!is_open_) return;
    if (told_tokens_ + tokens > kTokensMax && told_tokens_ > 0) {
      told.ended.reset();
      tokens = 0;
    }
    told_.push_back(std::move(told));
    told_tokens_ += tokens;
  }
  changed_.notify_one();
}

Status RequestCapture::close() {
  if (!thread_.joinable()) return status_;
  {
    const std::lock_guard lock(mutex_);
    is_open_ = false;
    closing_ = true;
  }
  changed_.notify_one();
  thread_.join();
  const Status closed = writer_->close();
  if (status_.ok()) status_ = closed;
  if (left_out() > 0) {
    STEMMA_LOG(kWarning, "cli.capture_left_out", kv("requests", left_out()));
  }
  return status_;
}

void RequestCapture::run() {
  bool closing = false;
  while (!closing) {
    std::vector<Told> told;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return closing_ || !told_.empty(); });
      closing = closing_;
      told.swap(told_);
      told_tokens_ = 0;
    }
    for (Told& one : told) take(std::move(one));
    if (closing) order_.give_up_rest();
    write_due();
  }
}

void RequestCapture::take(Told&& told) {
  if (told.submitted_us.has_value()) {
    order_.came(told.request, *told.submitted_us);
  } else if (told.ended.has_value()) {
    order_.ended(*std::move(told.ended));
  } else {
    order_.lost(told.request);
  }
}

// After an error nothing is written: a line may have been cut off.
void RequestCapture::write_due() {
  const bool was_ok = status_.ok();
  while (const std::optional<DueRequest> due = order_.try_next()) {
    if (!status_.ok()) continue;
    if (!begin_us_.has_value()) begin_us_ = due->submitted_us;
    const EndedRequest& ended = due->ended;
    status_ =
        writer_->write({.timestamp_ms = static_cast<double>(due->submitted_us - *begin_us_) / 1000,
                        .namespace_digest = ended.namespace_digest,
                        .tokens = ended.tokens,
                        .prompt_tokens = ended.prompt_tokens,
                        .finish_reason = finish_reason_name(ended.finish),
                        .priority = ended.priority,
                        .shared_prefix = ended.shared_prefix});
  }
  if (status_.ok()) status_ = writer_->flush();
  if (was_ok && !status_.ok()) {
    STEMMA_LOG(kWarning, "cli.capture_failed", kv("error", to_string(status_.error())));
  }
}

}  // namespace stemma
