// Options: everything that is fixed when a cache, a scheduler or an engine is opened.
//
// Each field states its unit, its default and what a larger or smaller value costs. `validate` is
// run by whoever opens; a wrong value is one line that names the field.
//
// Thread:     values.
// Memory:     a few words. What the values make others allocate is stated per field.
// Cost:       none.
// Not here:   what one request may ask for (RequestSpec, engine.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "stemma/kv_shape.h"
#include "stemma/result.h"

namespace stemma {

// When pages are copied to lower tiers.
enum class WritePolicy : std::uint8_t {
  kWriteThrough,           // as soon as they are published
  kWriteThroughSelective,  // once they were used often enough
  kWriteBack,              // before they are evicted: the coldest, ahead of need; where there are
                           // page stores, which others may share, also as kWriteThroughSelective
};

// What moves between the device and the tiers below it, where there are any (LowerTiers).
struct TierOptions {
  // Which page of host memory goes first when room is needed; names as KvCacheOptions::eviction.
  std::string host_eviction = "lru";

  WritePolicy write_policy = WritePolicy::kWriteBack;

  // Unless kWriteThrough: uses after which pages are copied at once, being computed the first of
  // them. A request's own next chunk is no use. 1 copies all, as kWriteThrough does.
  std::int64_t selective_uses = 2;

  // For kWriteBack: pages that are kept free or copied ahead, so that eviction loses nothing and
  // waits for nothing. -1: one page in eight, at least one.
  std::int64_t demote_ahead_pages = -1;

  // How long a request waits for pages of lower tiers before it computes what is not there yet,
  // while the rest goes on loading: what a tier that hangs costs at most. 0 never waits; a year
  // stands for any longer time.
  std::int64_t load_wait_us = 40'000;

  // Whether a step may begin before pages that come from host memory are whole: each layer then
  // waits for its own bytes only. Runners that cannot wait by layer are given whole pages anyway.
  bool load_by_layer = true;

  // Pages of one copy up, at most: what is asked of a page store in one piece, and decided on at
  // once.
  std::int64_t load_pages_max = 64;

  // After which an operation of a page store is given up. As above, a year at most.
  std::int64_t store_deadline_us = 2'000'000;

  // Texts of which pages are being brought up at the same time, at most. A quarter of these places
  // are left to texts of host memory, half of them to texts whose turn has come.
  std::int64_t promotions_max = 16;
};

struct KvCacheOptions {
  // Tokens per page: the unit of sharing and of allocation; any value >= 1. Small pages share more
  // (1 shares every token), large pages make tables and trees smaller.
  std::int64_t page_size = 16;

  // Pages of KV. Everything that is cached or being computed lives in them; the pool must be of
  // this size. `pages_for_bytes` turns a byte limit into this number. No default: 0 is refused.
  std::int64_t pages = 0;

  // Where some layers look back over a window only: how many tokens, the one that looks included,
  // and the pages of their pool. Each page of it carries the KV of page_size tokens in those
  // layers. 0: there are none. `windowed_pages_max` says how many a request needs.
  std::int64_t window_tokens = 0;
  std::int64_t windowed_pages = 0;

  // Requests that hold KV at the same time, at most: the largest decode batch. Each costs a row of
  // the request table, 4 bytes a page of context.
  std::int64_t requests_max = 16;

  // Tokens of one request, prompt and output together, at most.
  std::int64_t context_tokens_max = 4096;

  // Namespaces that have a name in a tree: those of requests that have not ended, and those that
  // have pages. One more takes the name, and what it has, of those that were used least lately, of
  // tenants within their quotas last; a request is refused where each is some request's. Each costs
  // about 190 bytes a tree, once it is used, and looking for nodes of those that lose their names
  // O(nodes), once for one in 64 of these, or for all that may go before those of tenants within
  // their quotas if these are fewer. From 1 to 1,048,576.
  std::int64_t namespaces_max = 65'536;

  // "radix" shares prefixes between requests; "none" shares nothing and keeps nothing.
  std::string cache = "radix";

  // Which cached page goes first when room is needed: "lru", "lfu", "fifo", "mru", "filo", "slru",
  // "priority", "gdsf", "tlru", "s3fifo", "hazard" (docs/EVICTION.md). Read only by caches that
  // keep something.
  std::string eviction = "lru";

  // Pages of changes that are kept, until drained, for who follows the cache from outside
  // (KvCache::drain_events). At least what one step publishes and evicts: where more came together,
  // everything is handed over anew. Each costs 128 bytes and 4 a token, once it is used, and each
  // page that is published a hash. 0: there are no events, and they cost nothing.
  std::int64_t events_pages_max = 0;

  // Evicted pages that are remembered, so that a request can be told why its prefix ends where it
  // does (KvCache::why_ends): 16 bytes each. 0: none.
  std::int64_t evicted_marks = 0;

  TierOptions tiers;
};

// Which waiting request is looked at first.
enum class SchedulePolicy : std::uint8_t {
  kFcfs,                   // as they arrived
  kLpm,                    // longest cached prefix first
  kDfsWeight,              // along the tree, the subtree that most of them wait for first
  kLof,                    // longest output allowed first
  kRandom,                 // shuffled anew for each step, from SchedulerOptions::seed
  kPriority,               // highest priority first, then as they arrived
  kShortestUncachedFirst,  // fewest tokens to compute first
  kHrrn,                   // most waiting per token to compute first: nobody starves
};

// What RequestSpec::priority means to kFcfs and kLof, which sort by it first if it means anything.
enum class PriorityRule : std::uint8_t { kIgnore, kHighFirst, kLowFirst };

struct SchedulerOptions {
  // Tokens computed in one step, prompts and outputs together, at most. At least requests_max, so
  // that every running request gets its token in every step. Larger steps use the machine better;
  // smaller ones keep the time between two output tokens short.
  std::int64_t step_tokens_max = 2048;

  // How long a step may take, as far as steps before it tell: prompts are cut so that messages,
  // cancels and pages from lower tiers do not wait longer. 0: as long as step_tokens_max takes.
  std::int64_t step_us_max = 100'000;

  // Prompt tokens of one request in one step, at most. A longer prompt is computed in chunks.
  std::int64_t chunk_tokens_max = 2048;

  // Prompt tokens in one step whose logits are wanted beside those of outputs, at most
  // (RequestSpec::prompt_logprobs): the Runner gives as many rows of logits more. 0: requests that
  // want them are refused.
  std::int64_t scored_tokens_max = 0;

  // Requests that wait, at most; one more is refused. Each costs its own tokens.
  std::int64_t waiting_max = 1024;

  // Pages that admission leaves free while something runs, so that running requests can grow
  // before one of them must be preempted. -1: one page in a hundred, at least one.
  std::int64_t watermark_pages = -1;

  SchedulePolicy policy = SchedulePolicy::kFcfs;
  // Of fcfs, lof and priority: who goes first, and is preempted last.
  PriorityRule priority_rule = PriorityRule::kIgnore;

  // Whether cached prefixes that waiting requests will use are evicted after all others.
  bool keep_for_waiting = true;

  // For SchedulePolicy::kRandom.
  std::uint64_t seed = 0;

  // Whether later requests can find generated tokens as they find prompts. False leaves the pages
  // to prompts, and makes a preempted request compute its output again.
  bool publish_outputs = true;
};

struct EngineOptions {
  KvCacheOptions kv;
  SchedulerOptions scheduler;

  // Submitted or cancelled, not yet seen by the engine thread; one more is refused.
  std::int64_t inbox_max = 1024;

  // Where the runner queues steps, one is planned while the one before it is computed, as far as
  // nothing is to be decided: tokens are the same.
  bool plan_ahead = true;

  // Of so many pages used, one is watched to tell what other capacities and policies would hit
  // (Engine::cache_advice): 20 is within a point and costs nothing that shows; 1 watches all; 0
  // watches nothing.
  std::int64_t ghost_pages_per_sample = 20;

  // Of a hundred requests that find pages in the cache, so many have the last of them computed
  // again in the background, on average. Pages that differ are quarantined and reported. Each costs
  // the prefill of a page, while there is nothing else to compute or once in many steps; 0 trusts
  // what is cached. From 0 to 100.
  double shadow_audit_percent = 0;

  // From which a request that samples and brings no seed of its own gets one. The same engine, fed
  // the same requests in the same order, gives the same tokens.
  std::uint64_t sampling_seed = 0;
};

// kInvalidArgument naming the field that is wrong.
Status validate(const KvCacheOptions& options);
Status validate(const EngineOptions& options);

// "write-through", "write-through-selective", "write-back".
std::string_view write_policy_name(WritePolicy policy);
// The inverse; kInvalidArgument listing the known names for any other.
Result<WritePolicy> parse_write_policy(std::string_view name);

// "fcfs", "lpm", "dfs-weight", "lof", "random", "priority", "shortest-uncached-first", "hrrn".
std::string_view schedule_policy_name(SchedulePolicy policy);
// The inverse; kInvalidArgument listing the known names for any other.
Result<SchedulePolicy> parse_schedule_policy(std::string_view name);

// Windowed pages that a request holds at most which computes `chunk_tokens` at once, whatever its
// context: window and chunk, and what lies beside them in their first and last page.
std::int64_t windowed_pages_max(std::int64_t window_tokens, std::int64_t page_size,
                                std::int64_t chunk_tokens);

// The pages of `shape` (its own `pages` is not read) that fit into `kv_bytes`; kInvalidArgument if
// not even one does, or if the shape is wrong or without layers.
Result<std::int64_t> pages_for_bytes(std::int64_t kv_bytes, const KvShape& shape);

}  // namespace stemma
