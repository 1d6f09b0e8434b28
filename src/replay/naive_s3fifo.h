// NaiveS3Fifo: the eviction policy "s3fifo" written as plainly as possible, to compare with in
// tests: two lists of hashes, read from the front for every victim.
//
// Thread:     tests.
// Memory:     lists and maps.
// Cost:       O(pages) a victim.
// Not here:   anything that ships.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <vector>

#include "replay/naive_residents.h"

namespace stemma {

class NaiveS3Fifo {
 public:
  explicit NaiveS3Fifo(std::int64_t pages) : pages_(pages) {}

  std::int64_t resident_pages(const TraceRequest& request) const {
    return residents_.resident_pages(request);
  }

  // Drops the page whose turn it is, while `tip` (a hash, or −1) is held; its hash.
  std::int64_t evict(std::int64_t tip, std::int64_t) {
    const std::set<std::int64_t> leaves = residents_.leaves(tip);
    for (;;) {
      const bool small_first = std::ssize(small_) * 10 >= pages_;
      std::int64_t up = front_leaf(small_first ? small_ : main_, leaves);
      if (up == -1) up = front_leaf(small_first ? main_ : small_, leaves);
      const bool in_small = is_in(small_, up);
      if (uses_[up] == 0) {
        drop(up, in_small);
        return up;
      }
      if (in_small) {
        move_to_main(up);
      } else {
        --uses_[up];
        std::erase(main_, up);
        main_.push_back(up);
      }
    }
  }

  // The request ends; its first `pages` pages are resident. Those it computed arrive first.
  void end(const TraceRequest& request, std::int64_t pages, std::int64_t) {
    const std::int64_t found_pages = std::min(resident_pages(request), pages);
    for (std::int64_t i = found_pages; i < pages; ++i) {
      const auto at = static_cast<std::size_t>(i);
      residents_.add(request.page_hashes[at], i == 0 ? -1 : request.page_hashes[at - 1]);
      arrive(request.page_hashes[at]);
    }
    for (std::int64_t i = 0; i < found_pages; ++i) {
      int& uses = uses_[request.page_hashes[static_cast<std::size_t>(i)]];
      uses = std::min(uses + 1, 3);
    }
  }

 private:
  using Queue = std::vector<std::int64_t>;

  static bool is_in(const Queue& queue, std::int64_t hash) {
    return std::find(queue.begin(), queue.end(), hash) != queue.end();
  }

  // The first one of the queue that is a leaf, or −1.
  static std::int64_t front_leaf(const Queue& queue, const std::set<std::int64_t>& leaves) {
    const auto found = std::find_if(queue.begin(), queue.end(),
                                    [&](std::int64_t hash) { return leaves.contains(hash); });
    return found == queue.end() ? -1 : *found;
  }

  void arrive(std::int64_t hash) {
    uses_[hash] = 0;
    small_.push_back(hash);
    const auto ghost = std::find(ghosts_.begin(), ghosts_.end(), hash);
    if (ghost == ghosts_.end()) return;
    *ghost = -1;  // its place is kept until its time is over
    move_to_main(hash);
  }

  void move_to_main(std::int64_t hash) {
    for (; hash != -1 && is_in(small_, hash); hash = residents_.parent(hash)) {
      std::erase(small_, hash);
      main_.push_back(hash);
      uses_[hash] = 0;
    }
  }

  void drop(std::int64_t hash, bool in_small) {
    std::erase(in_small ? small_ : main_, hash);
    residents_.drop(hash);
    if (!in_small) return;
    ghosts_.push_back(hash);
    if (std::ssize(ghosts_) > pages_ - pages_ / 10) ghosts_.pop_front();
  }

  std::int64_t pages_;
  NaiveResidents residents_;
  std::map<std::int64_t, int> uses_;
  Queue small_;
  Queue main_;
  std::deque<std::int64_t> ghosts_;
};

}  // namespace stemma
