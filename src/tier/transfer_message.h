// Transfer messages: what a Transfer asks for, as one run of words, which other ranks read again.
// Ranks are programs of one build on machines of one kind, so that words need no other form than
// memory's.
//
// Thread:     one thread at a time.
// Memory:     the message; grows to that of the largest job and stays.
// Cost:       one copy in each direction.
// Not here:   how messages get to other ranks (device/rank_message), what became of a job
//             (rank_transfers).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tier/transfer.h"

namespace stemma {

// Writes what `job` asks for to `words`, in the place of what was there. Deadlines are told as the
// time that is left at `now_us`: clocks of ranks may differ.
void write_transfer(const Transfer& job, std::int64_t now_us, std::vector<std::int64_t>& words);

// The place of the job that `words` tell of.
std::int64_t transfer_place(std::span<const std::int64_t> words);

// Makes `job` ask for what `words` tell. REQUIRES: write_transfer wrote them, and `job` is blank.
void read_transfer(std::span<const std::int64_t> words, std::int64_t now_us, Transfer& job);

}  // namespace stemma
