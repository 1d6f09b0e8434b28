#include "tier/rank_host_image.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "stemma/log.h"
#include "tier/moved_page.h"
#include "tier/transfer_message.h"

namespace stemma {

namespace {

constexpr std::array kGroups = {LayerGroup::kFull, LayerGroup::kWindowed};

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

std::optional<std::int64_t> RankHostImage::told(const HostImages& images, HostFileTask task,
                                                const Transfer& pages) {
  STEMMA_CHECK(images.full_or_null != nullptr, "all ranks have a file of host memory, or none");
  switch (task) {
    case HostFileTask::kBeginLoad:
      return begin_load(images) ? 1 : 0;
    case HostFileTask::kLoad:
      return load(images, pages);
    case HostFileTask::kEndLoad:
      end_load();
      return std::nullopt;
    case HostFileTask::kBeginSave:
      begin_save(images);
      return std::nullopt;
    case HostFileTask::kSave:
      save(images, pages);
      return std::nullopt;
    case HostFileTask::kEndSave:
      return end_save(images) ? 1 : 0;
    case HostFileTask::kDropSave:
      drop_save();
      return std::nullopt;
    case HostFileTask::kRemove:
      end_load();
      drop_save();
      return noted(remove_host_images(images), "tier.host_file.not_removed") ? 1 : 0;
  }
  return std::nullopt;
}

// Without its windowed pages the others still are of use.
bool RankHostImage::begin_load(const HostImages& images) {
  end_load();
  for (const LayerGroup group : kGroups) {
    const HostImage* const image = images.of_or_null(group);
    if (image != nullptr) file_of(group).reader = open_or_null(*image);
  }
  return file_of(LayerGroup::kFull).reader != nullptr;
}

std::unique_ptr<HostImageReader> RankHostImage::open_or_null(const HostImage& image) {
  auto reader = HostImageReader::open(files_, image.path, image.label);
  if (reader.ok()) return std::move(reader).value();
  noted(reader.error(), "tier.host_file.ignored");
  return nullptr;
}

std::int64_t RankHostImage::load(const HostImages& images, const Transfer& pages) {
  File& file = file_of(pages.group);
  const HostImage& image = *images.of_or_null(pages.group);
  std::int64_t came = 0;
  for (std::size_t page = 0; page < pages.keys.size() && file.reader != nullptr; ++page) {
    const PageIdentity wanted = moved_page(pages, page, image.label.format.page_size, hasher_);
    const auto frame = find(file, wanted.key);
    if (!frame.has_value() || frame->identity != wanted) break;
    const MoveVerdict verdict =
        image.pages.write_image(pages.to[page], pages.keys[page], frame->body, frame->layer_sums);
    if (verdict != MoveVerdict::kDone) break;
    ++came;
  }
  return came;
}

void RankHostImage::end_load() {
  for (File& file : own_) {
    file.reader.reset();
    file.passed.clear();
  }
}

// Valid until the next call.
std::optional<PageFrameView> RankHostImage::find(File& file, const PageKey& key) {
  const auto passed = file.passed.find(key);
  if (passed != file.passed.end()) return file.reader->try_read(passed->second);
  while (const auto frame = file.reader->try_next()) {
    if (frame->identity.key == key) return frame;
    file.passed.try_emplace(frame->identity.key, file.reader->given_frame());
  }
  return std::nullopt;
}

// What was begun before and never ended is dropped.
void RankHostImage::begin_save(const HostImages& images) {
  drop_save();
  for (const LayerGroup group : kGroups) {
    const HostImage* const image = images.of_or_null(group);
    if (image == nullptr) continue;
    auto writer = HostImageWriter::open(image->path, image->label);
    const Status opened = writer.ok() ? Status() : Status(writer.error());
    if (!noted(opened, "tier.host_file.not_saved")) continue;
    file_of(group).writer = std::move(writer).value();
  }
}

void RankHostImage::drop_save() {
  for (File& file : own_) file.writer.reset();
}

// What is wrong here is left out, with what continues it: no rank will find it.
void RankHostImage::save(const HostImages& images, const Transfer& pages) {
  File& file = file_of(pages.group);
  const HostImage& image = *images.of_or_null(pages.group);
  for (std::size_t page = 0; page < pages.keys.size() && file.writer != nullptr; ++page) {
    const auto right =
        file.writer->write_page(image.pages, pages.from[page], pages.keys[page],
                                moved_page(pages, page, image.label.format.page_size, hasher_));
    if (right.ok() && *right) continue;
    if (!right.ok()) {
      noted(right.error(), "tier.host_file.not_saved");
      file.writer.reset();
    }
    break;
  }
}

bool RankHostImage::end_save(const HostImages& images) {
  bool all = true;
  for (const LayerGroup group : kGroups) {
    if (images.of_or_null(group) == nullptr) continue;
    const auto writer = std::move(file_of(group).writer);
    const bool written = writer != nullptr && noted(writer->finish(), "tier.host_file.not_saved");
    all = all && written;
  }
  return all;
}

}  // namespace stemma
