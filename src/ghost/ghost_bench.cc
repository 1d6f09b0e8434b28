#include "ghost/ghost_bench.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "base/check.h"
#include "ghost/ghost_cache.h"
#include "ghost/ghost_curve.h"
#include "ghost/ghost_workload.h"
#include "ghost/page_hashes.h"
#include "prefix/page_key.h"

namespace stemma {

namespace {

constexpr std::int64_t kCapacityPages = 1'000'000;
constexpr std::int64_t kWorkloadPages = 4'000'000;
constexpr std::int64_t kPageSize = 16;
constexpr int kSamples = 5;

using Requests = std::vector<std::vector<std::int64_t>>;
using Params = std::vector<std::pair<std::string, std::string>>;

struct Measured {
  std::vector<double> ns_per_page;
};

// Nanoseconds a page that `work` takes.
template <typename Work>
double nanoseconds_per_page(std::int64_t pages, Work&& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  const auto end = std::chrono::steady_clock::now();
  return std::chrono::duration<double, std::nano>(end - start).count() / static_cast<double>(pages);
}

Requests make_requests(std::int64_t& pages) {
  GhostWorkload workload(1);
  Requests requests;
  for (pages = 0; pages < kWorkloadPages;
       pages += static_cast<std::int64_t>(requests.back().size())) {
    requests.push_back(workload.next());
  }
  return requests;
}

BenchLine line_of(Params params, const Measured& measured, const Measured& bound,
                  std::string bound_name) {
  BenchLine line;
  line.bench = "ghost";
  line.params = std::move(params);
  line.value = median(measured.ns_per_page);
  line.unit = "ns/page";
  line.bound = median(bound.ns_per_page);
  line.bound_name = std::move(bound_name);
  line.ratio = line.bound / line.value;
  line.repeats = kSamples;
  line.spread = spread(measured.ns_per_page);
  return line;
}

Measured measure_cache(const Requests& requests, std::int64_t pages,
                       std::int64_t pages_per_sample) {
  Measured measured;
  for (int sample = 0; sample < kSamples; ++sample) {
    auto ghost = GhostCache::open({.policy = "slru",
                                   .capacity_pages = kCapacityPages,
                                   .pages_per_sample = pages_per_sample,
                                   .seed = 1});
    STEMMA_CHECK(ghost.ok(), "the options are right");
    measured.ns_per_page.push_back(nanoseconds_per_page(pages, [&] {
      for (const auto& request : requests) (*ghost)->look_up(request);
    }));
  }
  return measured;
}

Measured measure_curve(const Requests& requests, std::int64_t pages, std::int64_t pages_per_sample,
                       double& bytes_per_page) {
  Measured measured;
  for (int sample = 0; sample < kSamples; ++sample) {
    GhostCurve curve(
        {.capacity_pages_max = kCapacityPages, .pages_per_sample = pages_per_sample, .seed = 1});
    bytes_per_page = static_cast<double>(curve.memory_bytes()) / kCapacityPages;
    measured.ns_per_page.push_back(nanoseconds_per_page(pages, [&] {
      for (const auto& request : requests) curve.look_up(request);
    }));
  }
  return measured;
}

BenchLine bench_hashing() {
  constexpr std::int64_t kPages = 1'000;
  std::vector<TokenId> tokens(kPages * kPageSize);
  std::iota(tokens.begin(), tokens.end(), 0);
  std::vector<std::int64_t> hashes;
  Measured hashing;
  Measured keys;
  for (int sample = 0; sample < kSamples; ++sample) {
    hashing.ns_per_page.push_back(
        nanoseconds_per_page(kPages, [&] { hash_pages(sample, tokens, kPageSize, hashes); }));
    PageKeyChain chain({});
    keys.ns_per_page.push_back(nanoseconds_per_page(kPages, [&] {
      for (std::int64_t page = 0; page < kPages; ++page) {
        chain.append(std::span(tokens).subspan(static_cast<std::size_t>(page * kPageSize),
                                               static_cast<std::size_t>(kPageSize)));
      }
    }));
  }
  return line_of({{"part", "hash_pages"}, {"page_size", std::to_string(kPageSize)}}, hashing, keys,
                 "page_keys");
}

}  // namespace

std::vector<BenchLine> bench_ghost() {
  std::int64_t pages = 0;
  const Requests requests = make_requests(pages);
  const Measured full = measure_cache(requests, pages, /*pages_per_sample=*/1);
  std::vector<BenchLine> lines;
  for (const std::int64_t pages_per_sample : {20, 100}) {
    const std::string one_in = std::to_string(pages_per_sample);
    double bytes_per_page = 0;
    const Measured curve = measure_curve(requests, pages, pages_per_sample, bytes_per_page);
    lines.push_back(line_of({{"part", "lru_curve"},
                             {"pages_per_sample", one_in},
                             {"bytes_per_page", std::to_string(bytes_per_page)}},
                            curve, full, "full_cache"));
    lines.push_back(line_of({{"part", "slru_ghost"}, {"pages_per_sample", one_in}},
                            measure_cache(requests, pages, pages_per_sample), full, "full_cache"));
  }
  lines.push_back(bench_hashing());
  return lines;
}

}  // namespace stemma
