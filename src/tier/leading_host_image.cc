#include "tier/leading_host_image.h"

#include <algorithm>
#include <limits>
#include <string>

#include "device/rank_message.h"
#include "stemma/log.h"

namespace stemma {

// What cannot be told to all will not be asked for, nor answered, either: no call succeeds then.
Status LeadingHostImage::tell_all(HostFileTask task, const Transfer& pages) {
  write_host_file(task, pages, words_);
  return tell(ranks_, {RankTask::kHostFile}, words_);
}

Status LeadingHostImage::ask_all(HostFileTask task, const Transfer& pages) {
  STEMMA_RETURN_IF_ERROR(tell_all(task, pages));
  const std::int64_t own = std::numeric_limits<std::int64_t>::max();  // the others decide
  answers_.resize(static_cast<std::size_t>(ranks_.ranks()));
  return ranks_.gather(std::as_bytes(std::span(&own, 1)),
                       std::as_writable_bytes(std::span(answers_)));
}

// An error names the first rank that did not.
Status LeadingHostImage::all_did(HostFileTask task) {
  STEMMA_RETURN_IF_ERROR(ask_all(task));
  const auto failed = std::find(answers_.begin(), answers_.end(), 0);
  if (failed == answers_.end()) return {};
  return Error{ErrorCode::kIo, "rank " + std::to_string(failed - answers_.begin()) +
                                   ": its file of host memory: see its log"};
}

bool LeadingHostImage::begin_load() {
  const Status opened = all_did(HostFileTask::kBeginLoad);
  if (opened.ok()) return true;
  STEMMA_LOG(kWarning, "tier.host_file.ignored", kv("error", to_string(opened.error())));
  end_load();  // those that have opened theirs
  return false;
}

std::int64_t LeadingHostImage::load(const Transfer& pages) {
  if (!ask_all(HostFileTask::kLoad, pages).ok()) return 0;
  return std::min(*std::min_element(answers_.begin(), answers_.end()), pages.pages());
}

void LeadingHostImage::end_load() {
  ignore_error(tell_all(HostFileTask::kEndLoad), "no step can be computed either");
}

void LeadingHostImage::begin_save() {
  ignore_error(tell_all(HostFileTask::kBeginSave), "end_save says it");
}

void LeadingHostImage::save(const Transfer& pages) {
  ignore_error(tell_all(HostFileTask::kSave, pages), "end_save says it");
}

Status LeadingHostImage::end_save() {
  return all_did(HostFileTask::kEndSave);
}

void LeadingHostImage::drop_save() {
  ignore_error(tell_all(HostFileTask::kDropSave), "no step can be computed either");
}

Status LeadingHostImage::remove() {
  return all_did(HostFileTask::kRemove);
}

}  // namespace stemma
