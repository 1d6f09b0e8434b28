// ReplayWorkload: drawn traces of the kinds of traffic that caches meet, the same from one seed.
//
// Thread:     tests.
// Memory:     the trace.
// Cost:       drawing it.
// Not here:   anything that ships.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <set>
#include <string_view>
#include <vector>

#include "base/prng.h"
#include "replay/trace_reader.h"

namespace stemma {

class ReplayWorkload {
 public:
  using Trace = std::vector<TraceRequest>;
  using Pages = std::vector<std::int64_t>;

  // When requests (or conversations) begin, and how far apart on average.
  struct Span {
    double begin_s = 0;
    double end_s = 0;
    double gap_s = 1;
  };

  explicit ReplayWorkload(std::uint64_t seed) : random_(seed) {}

  // Conversations that grow by up to 12 pages a turn; three of four turns are followed by another.
  void add_chats(const Span& span, double think_s) {
    const Pages system = fresh(2);
    for (double begin_s = span.begin_s; begin_s < span.end_s; begin_s += wait(span.gap_s)) {
      Pages text = system;
      double at_s = begin_s;
      do {
        append(text, fresh(1 + random_.below(12)));
        add_turn(text, at_s, 20 + random_.below(600));
        at_s += 5 + wait(think_s);
      } while (random_.below(4) > 0 && at_s < span.end_s);
    }
  }

  // Runs of up to `steps_max` tool calls, seconds apart, below one long system prompt.
  void add_agents(const Span& span, std::int64_t steps_max) {
    const Pages system = fresh(12);
    for (double begin_s = span.begin_s; begin_s < span.end_s; begin_s += wait(span.gap_s)) {
      Pages text = system;
      append(text, fresh(4));
      double at_s = begin_s;
      for (std::int64_t step = 2 + random_.below(steps_max); step > 0 && at_s < span.end_s;
           --step) {
        add_turn(text, at_s, 10 + random_.below(100));
        append(text, fresh(1 + random_.below(6)));
        at_s += 1 + wait(8);
      }
    }
  }

  // Questions about documents, of which few are asked about often: the n-th by n^-skew.
  void add_documents(const Span& span, int documents, double skew) {
    std::vector<Pages> texts;
    std::vector<double> up_to = {0};
    for (int n = 1; n <= documents; ++n) {
      texts.push_back(fresh(1 + random_.below(20)));
      up_to.push_back(up_to.back() + std::pow(n, -skew));
    }
    for (double at_s = span.begin_s; at_s < span.end_s; at_s += wait(span.gap_s)) {
      const auto above = std::upper_bound(up_to.begin(), up_to.end() - 1, share() * up_to.back());
      Pages text = texts[static_cast<std::size_t>(above - up_to.begin()) - 1];
      append(text, fresh(random_.below(3)));
      add(text, at_s, 1 + random_.below(300));
    }
  }

  // The same texts round and round.
  void add_loop(const Span& span, std::int64_t texts, std::int64_t pages) {
    std::vector<Pages> loop;
    for (std::int64_t n = 0; n < texts; ++n) loop.push_back(fresh(pages));
    std::size_t next = 0;
    for (double at_s = span.begin_s; at_s < span.end_s; at_s += span.gap_s) {
      add(loop[next++ % loop.size()], at_s, 50);
    }
  }

  // Texts that nobody sends twice.
  void add_scan(const Span& span) {
    for (double at_s = span.begin_s; at_s < span.end_s; at_s += wait(span.gap_s)) {
      add(fresh(1 + random_.below(30)), at_s, 100);
    }
  }

  // All requests so far, in the order of time.
  Trace trace() {
    std::ranges::stable_sort(trace_, {}, &TraceRequest::timestamp_ms);
    return trace_;
  }

 private:
  double share() { return static_cast<double>(random_.below(1 << 30)) / (1 << 30); }
  double wait(double mean_s) { return -mean_s * std::log(1 - share()); }
  Pages fresh(std::int64_t pages) {
    Pages out;
    for (; pages > 0; --pages) out.push_back(next_hash_++);
    return out;
  }
  static void append(Pages& text, const Pages& more) {
    text.insert(text.end(), more.begin(), more.end());
  }
  // A turn of a conversation: its last page is only partly filled, and not met again.
  void add_turn(Pages text, double at_s, std::int64_t output_tokens) {
    append(text, fresh(1));
    add(text, at_s, output_tokens);
  }
  void add(const Pages& text, double at_s, std::int64_t output_tokens) {
    trace_.push_back({.timestamp_ms = std::floor(at_s * 1000),
                      .input_tokens = std::ssize(text) * 512 - 100,
                      .output_tokens = output_tokens,
                      .page_hashes = text});
  }

  Prng random_;
  std::int64_t next_hash_ = 1;
  Trace trace_;
};

inline constexpr std::array kWorkloadNames = {"chats",
                                              "agents",
                                              "agents and chats",
                                              "documents",
                                              "flat documents",
                                              "loop",
                                              "scan",
                                              "loop and scan",
                                              "documents and scan",
                                              "chats, then documents",
                                              "scan, then chats",
                                              "agents, then a loop",
                                              "other documents",
                                              "slow, then fast chats"};

// An hour of it. REQUIRES: one of kWorkloadNames.
inline ReplayWorkload::Trace workload_by_name(std::string_view name) {
  ReplayWorkload out(17);
  const auto hour = [](double gap_s) { return ReplayWorkload::Span{0, 3600, gap_s}; };
  const auto first = [](double gap_s) { return ReplayWorkload::Span{0, 1800, gap_s}; };
  const auto second = [](double gap_s) { return ReplayWorkload::Span{1800, 3600, gap_s}; };
  if (name == "chats") out.add_chats(hour(1.5), 90);
  if (name == "agents") out.add_agents(hour(8), 40);
  if (name == "agents and chats") out.add_agents(hour(15), 40);
  if (name == "agents and chats") out.add_chats(hour(3), 60);
  if (name == "documents") out.add_documents(hour(0.5), 2'000, 0.9);
  if (name == "flat documents") out.add_documents(hour(0.5), 2'000, 0.6);
  if (name == "loop") out.add_loop(hour(0.5), 400, 20);
  if (name == "scan") out.add_scan(hour(1));
  if (name == "loop and scan") out.add_loop(hour(1), 150, 20);
  if (name == "loop and scan") out.add_scan(hour(1));
  if (name == "documents and scan") out.add_documents(hour(1), 1'000, 1);
  if (name == "documents and scan") out.add_scan(hour(1));
  if (name == "chats, then documents") out.add_chats(first(1.5), 60);
  if (name == "chats, then documents") out.add_documents(second(0.5), 1'500, 0.8);
  if (name == "scan, then chats") out.add_scan(first(1));
  if (name == "scan, then chats") out.add_chats(second(1.5), 60);
  if (name == "agents, then a loop") out.add_agents(first(8), 40);
  if (name == "agents, then a loop") out.add_loop(second(0.5), 300, 20);
  if (name == "other documents") out.add_documents(first(0.5), 500, 0.9);
  if (name == "other documents") out.add_documents(second(0.5), 500, 0.9);
  if (name == "slow, then fast chats") out.add_chats(first(1.5), 300);
  if (name == "slow, then fast chats") out.add_chats(second(1.5), 20);
  return out.trace();
}

inline std::int64_t different_pages(const ReplayWorkload::Trace& trace) {
  std::set<std::int64_t> pages;
  for (const TraceRequest& request : trace) {
    pages.insert(request.page_hashes.begin(), request.page_hashes.end());
  }
  return std::ssize(pages);
}

}  // namespace stemma
