// A flight is with one thread at a time, or has an answer: neither queue is ever full.
#include "store/thread_queue.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <utility>

#include "base/check.h"

namespace stemma {

namespace {

constexpr int kThreadsMax = 8;

int answer_to_call(const DiskCall& call) {
  switch (call.kind) {
    case DiskCall::Kind::kOpen:
      return ::openat(call.descriptor, call.name.c_str(), call.flags, 0600);
    case DiskCall::Kind::kAllocate:
      return ::fallocate(call.descriptor, 0, 0, call.bytes);
    case DiskCall::Kind::kRename:
      return ::renameat(call.descriptor, call.name.c_str(), call.descriptor, call.new_name.c_str());
    case DiskCall::Kind::kRemove:
      return ::unlinkat(call.descriptor, call.name.c_str(), 0);
    case DiskCall::Kind::kSync:
      return call.data_only ? ::fdatasync(call.descriptor) : ::fsync(call.descriptor);
  }
  return -1;
}

}  // namespace

ThreadQueue::ThreadQueue(const Clock& clock, const DiskQueueOptions& options)
    : DiskQueue(clock, options), waiting_(options.depth), answers_(options.depth) {}

Result<std::unique_ptr<ThreadQueue>> ThreadQueue::open(const Clock& clock,
                                                       const DiskQueueOptions& options) {
  std::unique_ptr<ThreadQueue> queue(new ThreadQueue(clock, options));
  STEMMA_RETURN_IF_ERROR(queue->allocate_buffers());
  queue->start_threads();
  return queue;
}

void ThreadQueue::start_threads() {
  const int threads = std::min(depth(), kThreadsMax);
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

ThreadQueue::~ThreadQueue() {
  waiting_.close();
  threads_.clear();
  reap();  // a descriptor that was opened too late is closed
}

void ThreadQueue::work() {
  while (const std::optional<Work> work = waiting_.pop()) {
    const bool room = answers_.try_push({work->flight, answer_to(*work)});
    STEMMA_CHECK(room, "there is room for an answer of each flight");
  }
}

int ThreadQueue::answer_to(const Work& work) {
  if (!work.piece.has_value()) {
    const int answer = answer_to_call(work.call);
    return answer < 0 ? -errno : answer;
  }
  const auto& [descriptor, offset_bytes, bytes, reads] = *work.piece;
  ssize_t moved = reads ? ::pread(descriptor, bytes.data(), bytes.size(), offset_bytes)
                        : ::pwrite(descriptor, bytes.data(), bytes.size(), offset_bytes);
  // As io_uring does: what has no offsets is read as it comes.
  const bool is_pipe = moved < 0 && errno == ESPIPE && reads;
  if (is_pipe) moved = ::read(descriptor, bytes.data(), bytes.size());
  return moved < 0 ? -errno : static_cast<int>(moved);
}

void ThreadQueue::start(Flight& flight, const Piece& piece) {
  hand_over({.flight = &flight, .piece = piece});
}

void ThreadQueue::start(Flight& flight, const DiskCall& call) {
  hand_over({.flight = &flight, .piece = std::nullopt, .call = call});
}

void ThreadQueue::hand_over(Work&& work) {
  const bool room = waiting_.try_push(std::move(work));
  STEMMA_CHECK(room, "there is room for each flight");
}

bool ThreadQueue::wait(std::int64_t deadline_us) {
  const std::int64_t left = left_us(deadline_us);
  if (!answers_.wait_for_item(std::chrono::microseconds(left))) return left == kWaitMaxUs;
  reap();
  return true;
}

void ThreadQueue::reap() {
  while (const std::optional<Answer> ended = answers_.try_pop()) {
    take_answer(*ended->flight, ended->answer);
  }
}

void ThreadQueue::take_back_unstarted() {
  while (const std::optional<Work> work = waiting_.try_pop()) make_free(*work->flight);
}

}  // namespace stemma
