// ThreadRanks: ranks that are threads of one process, for tests.
//
// Thread:     run is called by one thread; each rank has a thread of its own.
// Memory:     a pointer a rank.
// Cost:       two meetings a call, asleep: who spins keeps the rank that it waits for from the
//             processor, where there are fewer of these than ranks.
// Not here:   ranks as processes (mpi_ranks).
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "base/check.h"
#include "device/rank_group.h"

namespace stemma {

class ThreadRanks {
 public:
  explicit ThreadRanks(int ranks) : meeting_(ranks), given_(static_cast<std::size_t>(ranks)) {
    for (int rank = 0; rank < ranks; ++rank) members_.emplace_back(*this, rank);
  }

  // Calls work(group) on a thread for each rank, and waits for all of them.
  void run(const std::function<void(RankGroup& ranks)>& work) {
    std::vector<std::jthread> threads;
    for (Member& member : members_) {
      threads.emplace_back([&work, &member] { work(member); });
    }
  }

 private:
  class Member final : public RankGroup {
   public:
    Member(ThreadRanks& all, int rank) : all_(all), rank_(rank) {}
    int rank() const override { return rank_; }
    int ranks() const override { return static_cast<int>(all_.given_.size()); }

    Status all_gather(std::span<const std::byte> own, std::span<std::byte> all) override {
      return exchange(own, all, true);
    }
    Status gather(std::span<const std::byte> own, std::span<std::byte> all) override {
      return exchange(own, all, rank_ == 0);
    }
    Status broadcast(std::span<std::byte> bytes) override {
      all_.give(rank_, bytes);
      const std::span<const std::byte> first = all_.given_[0];
      STEMMA_CHECK_EQ(first.size(), bytes.size());
      if (rank_ != 0 && !bytes.empty()) std::memcpy(bytes.data(), first.data(), bytes.size());
      all_.meeting_.arrive_and_wait();
      return {};
    }

   private:
    Status exchange(std::span<const std::byte> own, std::span<std::byte> all, bool takes) {
      all_.give(rank_, own);
      std::size_t at = 0;
      for (const std::span<const std::byte> part : all_.given_) {
        STEMMA_CHECK_EQ(part.size(), own.size());
        if (takes && !part.empty()) std::memcpy(&all[at], part.data(), part.size());
        at += part.size();
      }
      all_.meeting_.arrive_and_wait();
      return {};
    }

    ThreadRanks& all_;
    int rank_;
  };

  // Where all of them wait for the last.
  class Meeting {
   public:
    explicit Meeting(int members) : members_(members) {}
    void arrive_and_wait() {
      std::unique_lock lock(mutex_);
      const std::int64_t number = held_;
      if (++here_ < members_) {
        ended_.wait(lock, [&] { return held_ != number; });
        return;
      }
      here_ = 0;
      ++held_;
      ended_.notify_all();
    }

   private:
    const int members_;
    std::mutex mutex_;
    std::condition_variable ended_;
    int here_ = 0;
    std::int64_t held_ = 0;
  };

  void give(int rank, std::span<const std::byte> bytes) {
    given_[static_cast<std::size_t>(rank)] = bytes;
    meeting_.arrive_and_wait();
  }

  Meeting meeting_;
  std::vector<std::span<const std::byte>> given_;  // by rank, between two meetings
  std::vector<Member> members_;
};

}  // namespace stemma
