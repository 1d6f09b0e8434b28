// Transfer reports: what became of one rank's part of a job, as words, and all ranks' parts made
// one: a page has come where it has come on every rank, and is wrong where it is wrong on any.
//
// Thread:     one thread at a time.
// Memory:     a byte a page and a few words.
// Cost:       O(pages).
// Not here:   what a job asks for (transfer_message), who asks (leading_lanes).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tier/transfer.h"

namespace stemma {

// Words of a report on a job of as many pages, whatever became of it.
std::size_t report_words(std::int64_t pages);

// Appends what became of `part`; of one that has not ended, only that.
void append_report(const Transfer& part, bool ended, std::vector<std::int64_t>& words);

// Whether the part that `words` report on has ended.
bool has_ended(std::span<const std::int64_t> words);

// Makes of `whole` the job of which all parts that are merged came about. REQUIRES: its pages are
// those of its parts, and begin_merge is called first.
void begin_merge(Transfer& whole);
void merge_report(std::span<const std::int64_t> words, int rank, Transfer& whole);

// Makes of `whole` a job that failed.
void fail_transfer(Transfer& whole);

}  // namespace stemma
