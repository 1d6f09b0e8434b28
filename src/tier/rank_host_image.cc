#include "tier/rank_host_image.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "stemma/log.h"
#include "tier/transfer_message.h"

namespace stemma {

namespace {

// A page of those that move.
PageIdentity page_of(const Transfer& pages, std::size_t page, std::int64_t page_size) {
  const auto size = static_cast<std::size_t>(page_size);
  return {.key = pages.keys[page],
          .parent = page == 0 ? pages.parent : pages.keys[page - 1],
          .namespace_digest = pages.digest,
          .ordinal = pages.first_page + static_cast<std::int64_t>(page),
          .tokens = std::span(pages.tokens).subspan(page * size, size)};
}

bool is_page(const PageIdentity& a, const PageIdentity& b) {
  return a.key == b.key && a.parent == b.parent && a.namespace_digest == b.namespace_digest &&
         a.ordinal == b.ordinal && std::ranges::equal(a.tokens, b.tokens);
}

// Whether it was well.
bool noted(const Status& status, std::string_view event) {
  if (!status.ok()) STEMMA_LOG(kWarning, event, kv("error", to_string(status.error())));
  return status.ok();
}

}  // namespace

void write_host_file(HostFileTask task, const Transfer& pages, std::vector<std::int64_t>& words) {
  write_transfer(pages, 0, words);
  words.push_back(static_cast<std::int64_t>(task));
}

HostFileTask read_host_file(std::span<const std::int64_t> words, Transfer& pages) {
  STEMMA_CHECK(!words.empty(), "ranks: what came is no task of a file");
  read_transfer(words.first(words.size() - 1), 0, pages);
  return static_cast<HostFileTask>(words.back());
}

std::optional<std::int64_t> RankHostImage::told(const HostImage* image_or_null, HostFileTask task,
                                                const Transfer& pages) {
  STEMMA_CHECK(image_or_null != nullptr, "all ranks have a file of host memory, or none");
  const HostImage& image = *image_or_null;
  switch (task) {
    case HostFileTask::kBeginLoad:
      return begin_load(image) ? 1 : 0;
    case HostFileTask::kLoad:
      return load(image, pages);
    case HostFileTask::kEndLoad:
      end_load();
      return std::nullopt;
    case HostFileTask::kBeginSave:
      begin_save(image);
      return std::nullopt;
    case HostFileTask::kSave:
      save(image, pages);
      return std::nullopt;
    case HostFileTask::kEndSave:
      return end_save() ? 1 : 0;
    case HostFileTask::kRemove:
      return noted(remove_host_image(image.path), "tier.host_file.not_removed") ? 1 : 0;
  }
  return std::nullopt;
}

bool RankHostImage::begin_load(const HostImage& image) {
  end_load();
  auto reader = HostImageReader::open(files_, image.path, image.label);
  if (!noted(reader.ok() ? Status() : Status(reader.error()), "tier.host_file.ignored")) {
    return false;
  }
  reader_ = std::move(reader).value();
  return true;
}

std::int64_t RankHostImage::load(const HostImage& image, const Transfer& pages) {
  std::int64_t came = 0;
  for (std::size_t page = 0; page < pages.keys.size() && reader_ != nullptr; ++page) {
    const auto frame = find(pages.keys[page]);
    if (!frame.has_value()) break;
    if (!is_page(frame->identity, page_of(pages, page, image.label.format.page_size))) break;
    const MoveVerdict verdict =
        image.pages.write_image(pages.to[page], pages.keys[page], frame->body, frame->layer_sums);
    if (verdict != MoveVerdict::kDone) break;
    ++came;
  }
  return came;
}

void RankHostImage::end_load() {
  reader_.reset();
  passed_.clear();
}

// Valid until the next call.
std::optional<PageFrameView> RankHostImage::find(const PageKey& key) {
  const auto passed = passed_.find(key);
  if (passed != passed_.end()) return reader_->try_read(passed->second);
  while (const auto frame = reader_->try_next()) {
    if (frame->identity.key == key) return frame;
    passed_.try_emplace(frame->identity.key, reader_->given_frame());
  }
  return std::nullopt;
}

// What was begun before and never ended is dropped.
void RankHostImage::begin_save(const HostImage& image) {
  writer_.reset();
  auto writer = HostImageWriter::open(image.path, image.label);
  if (!noted(writer.ok() ? Status() : Status(writer.error()), "tier.host_file.not_saved")) return;
  writer_ = std::move(writer).value();
}

// What is wrong here is left out, with what continues it: no rank will find it.
void RankHostImage::save(const HostImage& image, const Transfer& pages) {
  for (std::size_t page = 0; page < pages.keys.size() && writer_ != nullptr; ++page) {
    const auto right = writer_->write_page(image.pages, pages.from[page],
                                           page_of(pages, page, image.label.format.page_size));
    if (right.ok() && *right) continue;
    if (!right.ok()) {
      noted(right.error(), "tier.host_file.not_saved");
      writer_.reset();
    }
    break;
  }
}

bool RankHostImage::end_save() {
  const auto writer = std::move(writer_);
  return writer != nullptr && noted(writer->finish(), "tier.host_file.not_saved");
}

}  // namespace stemma
