#include "cli/bench_command.h"

#include <algorithm>
#include <array>
#include <utility>

#include "attention/attention_bench.h"
#include "attention/scaled_attention_bench.h"
#include "attention/sparse_bench.h"
#include "base/bench_line.h"
#include "base/check.h"
#include "bindings/c_bench.h"
#include "cache/memory_bench.h"
#include "cli/bench_output.h"
#include "cli/bundled_model.h"
#include "device/gemm_bench.h"
#include "device/simd_target.h"
#include "engine/engine_bench.h"
#include "engine/miss_bench.h"
#include "engine/neighbour_bench.h"
#include "engine/step_bench.h"
#include "engine/tier_serving_bench.h"
#include "ghost/ghost_bench.h"
#include "grammar/forms_bench.h"
#include "model/load_bench.h"
#include "pool/host_copy_bench.h"
#include "pool/store_bench.h"
#include "prefix/prefix_bench.h"
#include "server/server_bench.h"
#include "store/disk_bench.h"
#include "store/redis_bench.h"

namespace stemma {

namespace {

using Lines = Result<std::vector<BenchLine>>;

struct Bench {
  std::string_view name;
  Lines (*run)();
};

// All of one name are run, and stand together. The first one counts what becomes resident, which
// memory that others gave back to the heap is already.
constexpr std::array<Bench, 22> kBenches = {{
    {"memory", [] { return bench_memory({}); }},
    {"match", [] { return Lines(bench_match()); }},
    {"evict", [] { return Lines(bench_evict()); }},
    {"insert", [] { return Lines(bench_insert()); }},
    {"c_abi", [] { return Lines(bench_c_abi()); }},
    {"ghost", [] { return Lines(bench_ghost()); }},
    {"store", [] { return Lines(bench_store()); }},
    {"attention", [] { return Lines(bench_attention()); }},
    {"attention", [] { return Lines(bench_scaled_attention()); }},
    {"attention", [] { return Lines(bench_sparse_attention()); }},
    {"gemm", [] { return bench_gemm({}); }},
    {"load", [] { return bench_load(default_load_bench()); }},
    {"step", [] { return bench_step(default_step_bench()); }},
    {"forms", [] { return Lines(bench_forms()); }},
    {"engine", [] { return bench_engine(default_engine_bench()); }},
    {"misses", [] { return bench_misses(default_miss_bench()); }},
    {"neighbour", [] { return bench_neighbour(default_neighbour_bench()); }},
    {"tier", [] { return bench_host_copies({}); }},
    {"tier", [] { return bench_disk({}); }},
    {"tier", [] { return bench_redis(); }},
    {"tier", [] { return bench_tier_serving(default_tier_serving_bench()); }},
    {"server", [] { return bench_server(find_bundled_model()); }},
}};

std::vector<std::string> known_names() {
  std::vector<std::string> names;
  for (const Bench& bench : kBenches) {
    if (names.empty() || names.back() != bench.name) names.emplace_back(bench.name);
  }
  return names;
}

}  // namespace

BenchCommand::BenchCommand(Flags& program)
    : command_(program.add_command("bench", "Measure, each figure beside its bound")) {
  const std::vector<std::string_view> targets = simd_target_names();
  command_.add("name", names_, "which benchmarks; all if none is named")
      .check_member(known_names());
  command_.add("--simd", simd_, "compute with this instruction set, not the best")
      .check_member({targets.begin(), targets.end()});
  command_.add("--json", json_, "one JSON object a case");
}

Status BenchCommand::run() {
  if (!simd_.empty()) STEMMA_CHECK(try_select_simd_target(simd_), "one of those there are");
  for (const Bench& bench : kBenches) {
    const bool named = std::find(names_.begin(), names_.end(), bench.name) != names_.end();
    if (!names_.empty() && !named) continue;
    STEMMA_ASSIGN_OR_RETURN(const std::vector<BenchLine> lines, bench.run());
    for (const BenchLine& line : lines) json_ ? print_json(line) : print_text(line);
  }
  return {};
}

}  // namespace stemma
