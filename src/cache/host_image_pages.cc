#include "cache/host_image_pages.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "cache/host_image_windows.h"
#include "cache/image_texts.h"
#include "cache/job_text.h"
#include "cache/saved_text.h"
#include "prefix/page_key.h"
#include "stemma/log.h"

namespace stemma {
namespace {

// Pages come one by one; those that continue each other are published together.
class ImageLoad {
 public:
  ImageLoad(HostTier& host, const HostImage& image, HostImageRanks* ranks_or_null)
      : host_(host), image_(image), ranks_(ranks_or_null), texts_(host.tree().page_size()) {}

  // False if it is left out.
  bool take(const PageFrameView& frame) {
    const PageIdentity& page = frame.identity;
    const std::optional<std::int64_t> parent = try_find_parent(page);
    if (!parent.has_value() || texts_.find(page.key).has_value()) return false;
    if (hasher_.next(page.parent, page.tokens) != page.key) return false;
    const bool goes_on = *parent != ImageTexts::kNone && *parent == last_;
    if (!goes_on && !begin_at(*parent, page.namespace_digest)) return false;
    OwnedPages target = host_.space().take_up_to(1);
    if (target.empty()) return false;
    PageId to;
    target.copy_to({&to, 1});
    if (image_.pages.write_image(to, page.key, frame.body, frame.layer_sums) !=
        MoveVerdict::kDone) {
      return false;
    }
    if (ranks_ != nullptr) note(page, to);
    run_.append(std::move(target));
    text_.insert(text_.end(), page.tokens.begin(), page.tokens.end());
    last_ = texts_.add(page, *parent);
    return true;
  }

  // Publishes what has come.
  void end() {
    if (ranks_ != nullptr && !run_.empty()) keep_what_all_have();
    if (!run_.empty()) {
      host_.tree().insert(text_, std::move(held_), std::move(run_), {}).reset();
    }
    held_.reset();
    last_ = ImageTexts::kNone;
    if (name_.valid()) host_.tree().close_namespace(std::exchange(name_, NamespaceId()));
  }

  // Pages that were taken, and that another rank did not have.
  std::int64_t lacked_pages() const { return lacked_pages_; }
  const ImageTexts& texts() const { return texts_; }

 private:
  // What other ranks are to bring of the run.
  void note(const PageIdentity& page, PageId to) {
    if (run_.empty()) {
      others_.clear();
      others_.digest = page.namespace_digest;
      others_.first_page = page.ordinal;
      others_.parent = page.parent;
    }
    others_.keys.push_back(page.key);
    others_.tokens.insert(others_.tokens.end(), page.tokens.begin(), page.tokens.end());
    others_.to.push_back(to);
  }

  // The pages beyond are as if they had not come: what continues them finds no parent.
  void keep_what_all_have() {
    const std::int64_t lacked = run_.pages() - ranks_->load(others_);
    lacked_pages_ += lacked;
    OwnedPages common = run_.take_front(run_.pages() - lacked);
    run_ = std::move(common);
    text_.resize(text_.size() - static_cast<std::size_t>(lacked * host_.tree().page_size()));
  }

  // kNone: it is the first of a text. nullopt: the page that it continues has not come.
  std::optional<std::int64_t> try_find_parent(const PageIdentity& page) const {
    if (page.ordinal == 0) {
      if (page.parent != PageKeyHasher::root(page.namespace_digest)) return std::nullopt;
      return ImageTexts::kNone;
    }
    const std::optional<std::int64_t> found = texts_.find(page.parent);
    if (!found.has_value()) return std::nullopt;
    const ImageTexts::Page& parent = texts_.page(*found);
    const bool fits =
        parent.ordinal + 1 == page.ordinal && parent.namespace_digest == page.namespace_digest;
    return fits ? found : std::nullopt;
  }

  // Goes on from another page than the last. False if that page has been evicted meanwhile, or no
  // name is left.
  bool begin_at(std::int64_t parent, const NamespaceDigest& digest) {
    end();
    const std::optional<NamespaceId> name = host_.space().try_open_namespace(digest);
    if (!name.has_value()) return false;
    name_ = *name;
    texts_.read_text(parent, text_);
    held_ = host_.tree().extend(host_.tree().match(name_, {}), text_);
    const bool there = held_.tokens() == std::ssize(text_);
    if (there) last_ = parent;
    if (!there) end();
    return there;
  }

  HostTier& host_;
  const HostImage& image_;
  HostImageRanks* ranks_;  // nullptr: there are no others
  Transfer others_;        // their part of the run
  std::int64_t lacked_pages_ = 0;
  PageKeyHasher hasher_;
  ImageTexts texts_;
  // What is about to be published: `run_` behind what `held_` holds, with the tokens of both.
  NamespaceId name_;
  PrefixLock held_;
  OwnedPages run_;
  std::vector<TokenId> text_;
  std::int64_t last_ = ImageTexts::kNone;  // the page at its end
};

// Writes texts, and of each what no text before it had.
class ImageSave {
 public:
  ImageSave(const HostImage& image, HostImageWriter& writer, HostImageRanks* ranks_or_null)
      : image_(image), writer_(writer), ranks_(ranks_or_null) {}

  // How many of the first pages of the text are in the file now.
  Result<std::int64_t> write(const PrefixLock& held, const SavedText& text) {
    const auto is_written = [this](const PageKey& key) { return written_.contains(key); };
    std::int64_t page = std::ranges::partition_point(text.keys, is_written) - text.keys.begin();
    if (ranks_ != nullptr) tell_others(held, text, page);
    for (; page < text.pages(); ++page) {
      STEMMA_ASSIGN_OR_RETURN(const bool right, write_page(text, static_cast<std::size_t>(page)));
      if (!right) break;  // what continues it is worth nothing
    }
    return page;
  }
  std::int64_t written_pages() const { return std::ssize(written_); }

 private:
  // They write at the same time.
  void tell_others(const PrefixLock& held, const SavedText& text, std::int64_t first_page) {
    if (first_page == text.pages()) return;
    others_.digest = text.digest;
    fill_text(others_, held, text.tokens, text.page_size, first_page);
    others_.from.assign(text.ids.begin() + first_page, text.ids.end());
    ranks_->save(others_);
  }

  // False if the page is wrong in host memory.
  Result<bool> write_page(const SavedText& text, std::size_t page) {
    STEMMA_ASSIGN_OR_RETURN(
        const bool right,
        writer_.write_page(image_.pages, text.ids[page], text.keys[page], text.identity(page)));
    if (right) written_.insert(text.keys[page]);
    return right;
  }

  const HostImage& image_;
  HostImageWriter& writer_;
  HostImageRanks* ranks_;  // nullptr: there are no others
  Transfer others_;        // what they write
  std::unordered_set<PageKey, PageKeyHash> written_;
};

using Reader = std::unique_ptr<HostImageReader>;

// nullptr, which is logged where there is a file.
Reader open_or_null(Files& files, const HostImage& image) {
  auto reader = HostImageReader::open(files, image.path, image.label);
  if (reader.ok()) return std::move(reader).value();
  if (reader.error().code != ErrorCode::kNotFound) {
    STEMMA_LOG(kWarning, "tier.host_file.ignored", kv("error", to_string(reader.error())));
  }
  return nullptr;
}

template <typename Load>
void take_all(HostImageReader& reader, Load& load, HostImageCounts& counts) {
  while (const auto frame = reader.try_next()) {
    ++(load.take(*frame) ? counts.loaded : counts.left_out);
  }
  load.end();
  counts.left_out += reader.bad_frames();
}

void leave_out(std::int64_t pages, HostImageCounts& counts) {
  counts.loaded -= pages;
  counts.left_out += pages;
}

Status save_text(RadixPrefixCache& tree, const PrefixLock& held, ImageSave& pages,
                 WindowsSave* windows_or_null) {
  SavedText text;
  text.read(tree, held);
  STEMMA_ASSIGN_OR_RETURN(const std::int64_t written, pages.write(held, text));
  return windows_or_null == nullptr ? Status() : windows_or_null->write(held, text, written);
}

// Writes every text in the order in which they would be evicted. A leaf that has had its turn stays
// locked, so that the next one comes to the fore. What others hold never does: it comes last.
Status save_texts(RadixPrefixCache& tree, std::span<const PrefixLock> held, ImageSave& pages,
                  WindowsSave* windows_or_null) {
  std::vector<PrefixLock> passed;
  while (auto cold = tree.try_lock_coldest()) {
    STEMMA_RETURN_IF_ERROR(save_text(tree, cold->lock, pages, windows_or_null));
    passed.push_back(std::move(cold->lock));
  }
  for (const PrefixLock& lock : held) {
    STEMMA_RETURN_IF_ERROR(save_text(tree, lock, pages, windows_or_null));
  }
  return {};
}

}  // namespace

HostImageCounts load_host_image(HostTier& host, const HostImages& images,
                                HostImageRanks* ranks_or_null) {
  HostImageCounts counts;
  PosixFiles files;
  const HostImage& image = *images.full_or_null;
  const Reader pages = open_or_null(files, image);
  if (pages == nullptr) return counts;
  if (ranks_or_null != nullptr && !ranks_or_null->begin_load()) return counts;
  ImageLoad load(host, image, ranks_or_null);
  take_all(*pages, load, counts);
  leave_out(load.lacked_pages(), counts);
  const Reader windows =
      images.windowed_or_null == nullptr ? nullptr : open_or_null(files, *images.windowed_or_null);
  if (windows != nullptr) {
    WindowsLoad hung(host, *images.windowed_or_null, load.texts(), ranks_or_null);
    take_all(*windows, hung, counts);
    leave_out(hung.dropped_pages(), counts);
  }
  if (ranks_or_null != nullptr) ranks_or_null->end_load();
  STEMMA_LOG(kInfo, "tier.host_file.open", kv("path", image.path), kv("pages", counts.loaded),
             kv("left_out", counts.left_out));
  return counts;
}

Result<std::int64_t> save_host_image(HostTier& host, const HostImages& images,
                                     HostImageRanks* ranks_or_null,
                                     std::span<const PrefixLock> held) {
  const HostImage& image = *images.full_or_null;
  STEMMA_ASSIGN_OR_RETURN(const auto writer, HostImageWriter::open(image.path, image.label));
  std::unique_ptr<HostImageWriter> windows_writer;
  std::optional<WindowsSave> windows;
  if (const HostImage* const windowed = images.windowed_or_null; windowed != nullptr) {
    STEMMA_ASSIGN_OR_RETURN(windows_writer, HostImageWriter::open(windowed->path, windowed->label));
    windows.emplace(host, *windowed, *windows_writer, ranks_or_null);
  }
  if (ranks_or_null != nullptr) ranks_or_null->begin_save();
  ImageSave pages(image, *writer, ranks_or_null);
  if (Status saved =
          save_texts(host.tree(), held, pages, windows.has_value() ? &*windows : nullptr);
      !saved.ok()) {
    if (ranks_or_null != nullptr) ranks_or_null->drop_save();
    return std::move(saved).error();
  }
  if (ranks_or_null != nullptr) STEMMA_RETURN_IF_ERROR(ranks_or_null->end_save());
  STEMMA_RETURN_IF_ERROR(writer->finish());
  if (windows_writer != nullptr) STEMMA_RETURN_IF_ERROR(windows_writer->finish());
  return pages.written_pages() + (windows.has_value() ? windows->written_pages() : 0);
}

}  // namespace stemma
