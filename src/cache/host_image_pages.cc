#include "cache/host_image_pages.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "cache/job_text.h"
#include "prefix/page_key.h"
#include "stemma/log.h"

namespace stemma {
namespace {

// Pages come one by one; those that continue each other are published together.
class ImageLoad {
 public:
  ImageLoad(HostTier& host, const HostImage& image, HostImageRanks* ranks_or_null)
      : host_(host), image_(image), ranks_(ranks_or_null) {}

  // False if it is left out.
  bool take(const PageFrameView& frame) {
    const PageIdentity& page = frame.identity;
    const std::optional<std::int64_t> parent = try_find_parent(page);
    if (!parent.has_value() || places_.contains(page.key)) return false;
    if (hasher_.next(page.parent, page.tokens) != page.key) return false;
    const bool goes_on = *parent >= 0 && *parent == last_;
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
    last_ = std::ssize(pages_);
    places_[page.key] = last_;
    pages_.push_back({*parent, page.ordinal, page.namespace_digest});
    tokens_.insert(tokens_.end(), page.tokens.begin(), page.tokens.end());
    return true;
  }

  // Publishes what has come.
  void end() {
    if (ranks_ != nullptr && !run_.empty()) keep_what_all_have();
    if (!run_.empty()) {
      host_.tree().insert(text_, std::move(held_), std::move(run_), {}).reset();
    }
    held_.reset();
    last_ = -1;
    if (name_.valid()) host_.tree().close_namespace(std::exchange(name_, NamespaceId()));
  }

  // Pages that were taken, and that another rank did not have.
  std::int64_t lacked_pages() const { return lacked_pages_; }

 private:
  // A page that came.
  struct Page {
    std::int64_t parent = -1;  // its place in pages_
    std::int64_t ordinal = 0;
    NamespaceDigest namespace_digest;
  };

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

  // -1: it is the first of a text. nullopt: the page that it continues has not come.
  std::optional<std::int64_t> try_find_parent(const PageIdentity& page) const {
    if (page.ordinal == 0) {
      if (page.parent != PageKeyHasher::root(page.namespace_digest)) return std::nullopt;
      return -1;
    }
    const auto found = places_.find(page.parent);
    if (found == places_.end()) return std::nullopt;
    const Page& parent = pages_[static_cast<std::size_t>(found->second)];
    const bool fits =
        parent.ordinal + 1 == page.ordinal && parent.namespace_digest == page.namespace_digest;
    return fits ? std::optional(found->second) : std::nullopt;
  }

  // Goes on from another page than the last. False if that page has been evicted meanwhile, or no
  // name is left.
  bool begin_at(std::int64_t parent, const NamespaceDigest& digest) {
    end();
    const std::optional<NamespaceId> name = host_.tree().try_open_namespace(digest);
    if (!name.has_value()) return false;
    name_ = *name;
    read_text(parent);
    held_ = host_.tree().extend(host_.tree().match(name_, {}), text_);
    const bool there = held_.tokens() == std::ssize(text_);
    if (there) last_ = parent;
    if (!there) end();
    return there;
  }

  // The tokens up to the end of a page.
  void read_text(std::int64_t page) {
    const auto size = static_cast<std::size_t>(host_.tree().page_size());
    const std::int64_t pages = page < 0 ? 0 : pages_[static_cast<std::size_t>(page)].ordinal + 1;
    text_.resize(static_cast<std::size_t>(pages) * size);
    for (; page >= 0; page = pages_[static_cast<std::size_t>(page)].parent) {
      const auto at = static_cast<std::size_t>(page);
      const auto from = tokens_.begin() + static_cast<std::ptrdiff_t>(at * size);
      const auto to = static_cast<std::size_t>(pages_[at].ordinal) * size;
      std::copy_n(from, size, text_.begin() + static_cast<std::ptrdiff_t>(to));
    }
  }

  HostTier& host_;
  const HostImage& image_;
  HostImageRanks* ranks_;  // nullptr: there are no others
  Transfer others_;        // their part of the run
  std::int64_t lacked_pages_ = 0;
  PageKeyHasher hasher_;
  std::vector<Page> pages_;
  std::vector<TokenId> tokens_;  // [pages_, page_size]
  std::unordered_map<PageKey, std::int64_t, PageKeyHash> places_;
  // What is about to be published: `run_` behind what `held_` holds, with the tokens of both.
  NamespaceId name_;
  PrefixLock held_;
  OwnedPages run_;
  std::vector<TokenId> text_;
  std::int64_t last_ = -1;  // the page at its end
};

// Writes texts, and of each what no text before it had.
class ImageSave {
 public:
  ImageSave(HostTier& host, const HostImage& image, HostImageWriter& writer,
            HostImageRanks* ranks_or_null)
      : tree_(host.tree()), image_(image), writer_(writer), ranks_(ranks_or_null) {}

  Status write(const PrefixLock& held) {
    const std::int64_t page_size = tree_.page_size();
    const auto pages = static_cast<std::size_t>(held.tokens() / page_size);
    keys_.resize(pages);
    ids_.resize(pages);
    text_.resize(static_cast<std::size_t>(held.tokens()));
    held.copy_page_keys(0, keys_);
    held.copy_pages(0, ids_);
    tree_.copy_tokens(held, text_);
    const auto is_written = [this](const PageKey& key) { return written_.contains(key); };
    const auto first = std::ranges::partition_point(keys_, is_written) - keys_.begin();
    if (ranks_ != nullptr) tell_others(held, first);
    for (auto page = static_cast<std::size_t>(first); page < pages; ++page) {
      STEMMA_ASSIGN_OR_RETURN(const bool right, write_page(held.namespace_id(), page));
      if (!right) break;  // what continues it is worth nothing
    }
    return {};
  }
  std::int64_t written_pages() const { return std::ssize(written_); }

 private:
  // They write at the same time.
  void tell_others(const PrefixLock& held, std::int64_t first_page) {
    if (first_page == std::ssize(keys_)) return;
    others_.digest = tree_.digest(held.namespace_id());
    fill_text(others_, held, text_, tree_.page_size(), first_page);
    others_.from.assign(ids_.begin() + first_page, ids_.end());
    ranks_->save(others_);
  }

  // False if the page is wrong in host memory.
  Result<bool> write_page(NamespaceId ns, std::size_t page) {
    const NamespaceDigest& digest = tree_.digest(ns);
    const auto size = static_cast<std::size_t>(tree_.page_size());
    STEMMA_ASSIGN_OR_RETURN(
        const bool right,
        writer_.write_page(image_.pages, ids_[page],
                           {.key = keys_[page],
                            .parent = page == 0 ? PageKeyHasher::root(digest) : keys_[page - 1],
                            .namespace_digest = digest,
                            .ordinal = static_cast<std::int64_t>(page),
                            .tokens = std::span(text_).subspan(page * size, size)}));
    if (right) written_.insert(keys_[page]);
    return right;
  }

  RadixPrefixCache& tree_;
  const HostImage& image_;
  HostImageWriter& writer_;
  HostImageRanks* ranks_;  // nullptr: there are no others
  Transfer others_;        // what they write
  std::unordered_set<PageKey, PageKeyHash> written_;
  std::vector<PageKey> keys_;
  std::vector<PageId> ids_;
  std::vector<TokenId> text_;
};

}  // namespace

HostImageCounts load_host_image(HostTier& host, const HostImage& image,
                                HostImageRanks* ranks_or_null) {
  HostImageCounts counts;
  PosixFiles files;
  const auto reader = HostImageReader::open(files, image.path, image.label);
  if (!reader.ok()) {
    if (reader.error().code == ErrorCode::kNotFound) return counts;
    STEMMA_LOG(kWarning, "tier.host_file.ignored", kv("error", to_string(reader.error())));
    return counts;
  }
  if (ranks_or_null != nullptr && !ranks_or_null->begin_load()) return counts;
  ImageLoad load(host, image, ranks_or_null);
  while (const auto frame = (*reader)->try_next()) {
    ++(load.take(*frame) ? counts.loaded : counts.left_out);
  }
  load.end();
  if (ranks_or_null != nullptr) ranks_or_null->end_load();
  counts.loaded -= load.lacked_pages();
  counts.left_out += load.lacked_pages() + (*reader)->bad_frames();
  STEMMA_LOG(kInfo, "tier.host_file.open", kv("path", image.path), kv("pages", counts.loaded),
             kv("left_out", counts.left_out));
  return counts;
}

// A leaf that has had its turn stays locked, so that the next one comes to the fore.
Result<std::int64_t> save_host_image(HostTier& host, const HostImage& image,
                                     HostImageRanks* ranks_or_null) {
  STEMMA_ASSIGN_OR_RETURN(const auto writer, HostImageWriter::open(image.path, image.label));
  if (ranks_or_null != nullptr) ranks_or_null->begin_save();
  ImageSave save(host, image, *writer, ranks_or_null);
  std::vector<PrefixLock> passed;
  while (auto cold = host.tree().try_lock_coldest()) {
    STEMMA_RETURN_IF_ERROR(save.write(cold->lock));
    passed.push_back(std::move(cold->lock));
  }
  if (ranks_or_null != nullptr) STEMMA_RETURN_IF_ERROR(ranks_or_null->end_save());
  STEMMA_RETURN_IF_ERROR(writer->finish());
  return save.written_pages();
}

}  // namespace stemma
