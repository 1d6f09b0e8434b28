// NaiveHazard: the eviction policy "hazard" written as plainly as possible, to compare with in
// tests: pages in a map by their hashes, every leaf collected and looked at for every victim.
//
// What is learned (HazardTable, LruDuel) is shared with the policy and tested on its own; which
// page is of which class, which are known, and what goes is written again here.
//
// Thread:     tests.
// Memory:     maps.
// Cost:       O(pages) a victim.
// Not here:   anything that ships.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "prefix/hazard_table.h"
#include "prefix/lru_duel.h"
#include "replay/trace_reader.h"

namespace stemma {

class NaiveHazard {
 public:
  NaiveHazard(std::int64_t pages, std::int64_t page_size, std::int64_t ghosts)
      : pages_(pages), page_size_(page_size), ghosts_max_(ghosts) {}

  // Pages of the request that are resident, from its first on.
  std::int64_t resident_pages(const TraceRequest& request) const {
    std::int64_t pages = 0;
    for (const std::int64_t hash : request.page_hashes) {
      const auto found = known_.find(hash);
      if (found == known_.end() || !found->second.resident) break;
      ++pages;
    }
    return pages;
  }

  // Drops the page that is worth least, while `tip` (a hash, or −1) is held; its hash.
  std::int64_t evict(std::int64_t tip, std::int64_t now_us) {
    const std::int64_t victim = choose(leaves(tip), now_us);
    known_[victim].resident = false;
    ghosts_.push_back({victim, known_[victim].ghost = ++evictions_});
    if (std::ssize(ghosts_) > ghosts_max_) forget(now_us);
    return victim;
  }

  // The request ends; its first `pages` pages are resident.
  void end(const TraceRequest& request, std::int64_t pages, std::int64_t now_us) {
    ++requests_;
    std::vector<Page*> path;
    std::int64_t parent = -1;
    for (std::int64_t i = 0; i < pages; ++i) {
      const std::int64_t hash = request.page_hashes[static_cast<std::size_t>(i)];
      path.push_back(&known_[hash]);
      path.back()->parent = parent;
      parent = hash;
    }
    if (!path.empty()) learn(request, path, now_us);
    if (!path.empty()) table_.count_request(now_us);
    if (requests_ % LruDuel::kRequestsPerRound == 0) duel_.end_round();
  }

 private:
  struct Page {
    std::int64_t parent = -1;
    bool resident = false;
    bool known = false;
    std::int64_t ghost = 0;  // which eviction made it one
    int page_class = 0;
    std::int64_t weight = 0;
    std::int64_t used_us = 0;
    std::int64_t request = 0;
    std::int64_t turn = 0;
    std::int64_t before_end = 0;
    std::int64_t other_texts = 0;
  };

  std::vector<std::int64_t> leaves(std::int64_t tip) const {
    std::map<std::int64_t, bool> has_child;
    for (const auto& [hash, page] : known_) {
      if (page.resident) has_child[page.parent] = true;
    }
    std::vector<std::int64_t> out;
    for (const auto& [hash, page] : known_) {
      if (page.resident && !has_child.contains(hash) && hash != tip) out.push_back(hash);
    }
    return out;
  }

  std::int64_t choose(std::vector<std::int64_t> leaves, std::int64_t now_us) const {
    const auto page = [this](std::int64_t hash) -> const Page& { return known_.at(hash); };
    std::sort(leaves.begin(), leaves.end(),
              [&](std::int64_t a, std::int64_t b) { return page(a).request < page(b).request; });
    if (duel_.lru_leads()) return leaves.front();
    std::map<int, std::int64_t> oldest;
    std::map<int, std::int64_t> youngest;
    for (const std::int64_t leaf : leaves) {
      oldest.try_emplace(page(leaf).page_class, leaf);
      youngest[page(leaf).page_class] = leaf;
    }
    const auto worth = [&](std::int64_t hash) {
      return table_.index(page(hash).page_class, now_us - page(hash).used_us);
    };
    const auto worst = *std::min_element(leaves.begin(), leaves.end(), [&](auto a, auto b) {
      const bool a_is_end = oldest[page(a).page_class] == a || youngest[page(a).page_class] == a;
      const bool b_is_end = oldest[page(b).page_class] == b || youngest[page(b).page_class] == b;
      if (a_is_end != b_is_end) return a_is_end;
      return std::pair(worth(a), page(a).request) < std::pair(worth(b), page(b).request);
    });
    return worth(worst) < 0.7 * worth(leaves.front()) ? worst : leaves.front();
  }

  void forget(std::int64_t now_us) {
    const auto [hash, ghost] = ghosts_.front();
    ghosts_.pop_front();
    Page& page = known_[hash];
    if (page.resident || page.ghost != ghost) return;
    table_.depart({page.page_class, page.weight, page.used_us, now_us, false, 1});
    known_.erase(hash);
  }

  void learn(const TraceRequest& request, const std::vector<Page*>& path, std::int64_t now_us) {
    const auto pages = std::ssize(path);
    std::int64_t known = pages;
    while (known > 0 && !path[static_cast<std::size_t>(known - 1)]->known) --known;
    std::int64_t continued = -1;
    PageClass::Turn turn;
    if (known > 0 && pages >= 2) {
      const Page& deepest = *path[static_cast<std::size_t>(known - 1)];
      if (deepest.before_end <= 1 && known + deepest.before_end >= 2) {
        continued = deepest.request;
        turn.turn = deepest.turn + 1;
      }
    }
    const std::int64_t prompt_pages =
        std::min(pages, (request.input_tokens + page_size_ - 1) / page_size_);
    turn.new_text_tokens =
        request.input_tokens * std::max<std::int64_t>(prompt_pages - known, 0) / prompt_pages;
    turn.output_tokens = request.output_tokens;
    leave(path, known, continued, now_us);
    enter(path, known, prompt_pages, turn, now_us);
  }

  void leave(const std::vector<Page*>& path, std::int64_t known, std::int64_t continued,
             std::int64_t now_us) {
    duel_.ask(std::ssize(path));
    const std::int64_t lru_since_us = table_.used_since_us(pages_);
    for (std::int64_t i = 0; i < known; ++i) {
      Page& page = *path[static_cast<std::size_t>(i)];
      if (page.known) {
        duel_.count(page.resident, page.used_us >= lru_since_us);
        table_.depart({page.page_class, page.weight, page.used_us, now_us, true, 1});
      }
      if (page.request != continued) ++page.other_texts;
    }
  }

  void enter(const std::vector<Page*>& path, std::int64_t known, std::int64_t prompt_pages,
             const PageClass::Turn& turn, std::int64_t now_us) {
    std::map<int, std::int64_t> of_class;
    for (std::int64_t i = 0; i < std::ssize(path); ++i) {
      Page& page = *path[static_cast<std::size_t>(i)];
      if (i >= known) page.other_texts = 0;
      page.page_class = PageClass::chat(turn, page.known);
      if (page.other_texts > 0) page.page_class = PageClass::shared(page.other_texts);
      if (i + 1 == std::ssize(path)) page.page_class = PageClass::kLast;
      ++of_class[page.page_class];
    }
    for (std::int64_t i = 0; i < std::ssize(path); ++i) {
      Page& page = *path[static_cast<std::size_t>(i)];
      page.resident = true;
      page.known = true;
      page.weight = HazardTable::weight_of_each(of_class[page.page_class]);
      page.used_us = now_us;
      page.request = requests_;
      page.turn = turn.turn;
      page.before_end = std::max<std::int64_t>(prompt_pages - 1 - i, 0);
      table_.arrive(page.page_class, page.weight, 1, now_us);
    }
  }

  std::int64_t pages_;
  std::int64_t page_size_;
  std::int64_t ghosts_max_;
  std::int64_t requests_ = 0;
  std::int64_t evictions_ = 0;
  HazardTable table_;
  LruDuel duel_;
  std::map<std::int64_t, Page> known_;  // by hash
  std::deque<std::pair<std::int64_t, std::int64_t>> ghosts_;
};

}  // namespace stemma
