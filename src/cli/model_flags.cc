#include "cli/model_flags.h"

#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "base/cpu_quota.h"
#include "base/thread_pool.h"
#include "cli/flag_errors.h"
#include "cli/sizes.h"
#include "device/mpi_ranks.h"
#include "model/weight_rounding.h"
#include "pool/kv_pool_factory.h"
#include "prefix/eviction_order.h"
#include "template/template_date.h"

namespace stemma {

namespace {

// The most that a cache takes.
constexpr std::int64_t kPageTokensMax = (std::int64_t{1} << 31) - 1;

// The line on a terminal while weights are read.
void show_progress(const LoadProgress& progress) {
  std::cerr << "\rreading weights: " << format_bytes(progress.done_bytes) << " of "
            << format_bytes(progress.total_bytes)
            << (progress.done_bytes == progress.total_bytes ? "\n" : "  ") << std::flush;
}

Status check_at_least(std::string_view flag, std::int64_t value, std::int64_t least) {
  if (value >= least) return {};
  return Error{ErrorCode::kInvalidArgument, std::string(flag) + " must be at least " +
                                                std::to_string(least) + " (got " +
                                                std::to_string(value) + ")"};
}

}  // namespace

Flag ModelFlags::add_to(Flags& command) {
  const Flag model =
      command.add("--model", directory_, "directory of config.json, *.safetensors, tokenizer.json");
  device_flags_.add_to(command);
  command.add("--cache", cache_, "radix or none")
      .check_member({"radix", "none"})
      .capture_default_str();
  command
      .add("--eviction", eviction_, "lru lfu fifo mru filo slru priority gdsf tlru s3fifo hazard")
      .capture_default_str();
  command
      .add("--policy", policy_,
           "fcfs lpm dfs-weight lof random priority shortest-uncached-first hrrn")
      .capture_default_str();
  command.add("--low-priorities-first,--schedule-low-priority-values-first", low_first_,
              "requests of low priority are the urgent ones; without, --policy priority takes high "
              "ones first");
  command.add("--page-size", page_size_, "tokens per page").capture_default_str();
  command.add("--context-tokens", context_tokens_, "prompt and output; 0: the model's")
      .capture_default_str();
  command.add("--kv-bytes", kv_bytes_, "memory for keys and values (KiB MiB GiB)")
      .capture_default_str();
  command
      .add("--windowed-share", windowed_share_,
           "of models with sliding windows: pages of those layers for each page of the "
           "others, 0.01 to 1")
      .capture_default_str();
  command
      .add(
          "--weights", weights_,
          "auto (as the files have them) int8 int4: rounded as they are loaded; wide: codes of the "
          "files become numbers")
      .capture_default_str();
  command
      .add("--kv-dtype", kv_dtype_,
           "f32 f16 bf16 fp8_e4m3 fp8_e5m2 int8 auto; the 8-bit ones scale each token and "
           "head and hold nearly twice the tokens of bf16")
      .capture_default_str();
  command.add("--kv-layout", kv_layout_, "layer_first page_first").capture_default_str();
  command.add("--attention", attention_, "cpu reference")
      .check_member({"cpu", "reference"})
      .capture_default_str();
  command
      .add("--threads", threads_, "0: one for each CPU that the process and its container may use")
      .capture_default_str();
  command
      .add("--pin-threads", pin_threads_,
           "auto off; auto: each stays on a CPU of its own where there are as many of both")
      .capture_default_str();
  command
      .add("--tensor-parallel", ranks_,
           "N ranks that compute the model together, each its heads and its outputs of every "
           "matrix; start it with mpirun -n N. With --device cuda each takes the GPU of its number")
      .check_range(1, 1024)
      .capture_default_str();
  command.add("--concurrency", concurrency_, "requests computed at a time, at most")
      .capture_default_str();
  command.add("--chunk-tokens", chunk_tokens_, "prompt tokens in one step, at most")
      .capture_default_str();
  command.add("--adapter,--lora-modules", adapters_,
              "NAME=DIR: a LoRA adapter (adapter_config.json, adapter_model.safetensors) "
              "that requests may name; may be given several times");
  command.add("--date", date_,
              "YYYY-MM-DD: what chat templates that print the date take for today, so that the "
              "same chats make the same prompts; default: today, in local time");
  sparse_flags_.add_to(command);
  tier_flags_.add_to(command);
  return model;
}

Status ModelFlags::check_names() const {
  STEMMA_RETURN_IF_ERROR(of_flag("--eviction", EvictionOrder::make(eviction_, 1)));
  STEMMA_RETURN_IF_ERROR(of_flag("--policy", parse_schedule_policy(policy_)));
  STEMMA_RETURN_IF_ERROR(of_flag("--weights", parse_weight_rounding(weights_)));
  STEMMA_RETURN_IF_ERROR(of_flag("--kv-layout", parse_kv_layout(kv_layout_)));
  return kv_dtype_ == "auto" ? Status() : of_flag("--kv-dtype", parse_kv_dtype(kv_dtype_));
}

Status ModelFlags::check() const {
  STEMMA_RETURN_IF_ERROR(check_names());
  STEMMA_RETURN_IF_ERROR(check_at_least("--page-size", page_size_, 1));
  if (page_size_ > kPageTokensMax) {
    return Error{ErrorCode::kInvalidArgument, "--page-size must be at most " +
                                                  std::to_string(kPageTokensMax) + " (got " +
                                                  std::to_string(page_size_) + ")"};
  }
  STEMMA_RETURN_IF_ERROR(check_at_least("--concurrency", concurrency_, 1));
  STEMMA_RETURN_IF_ERROR(check_at_least("--chunk-tokens", chunk_tokens_, 1));
  STEMMA_RETURN_IF_ERROR(check_at_least("--context-tokens", context_tokens_, 0));
  STEMMA_RETURN_IF_ERROR(check_windowed_share(windowed_share_));
  if (pin_threads_ != "auto" && pin_threads_ != "off") {
    return Error{ErrorCode::kInvalidArgument,
                 "--pin-threads must be auto or off (got " + pin_threads_ + ")"};
  }
  return check_at_least("--threads", threads_, 0);
}

Result<std::vector<AdapterSource>> ModelFlags::adapters() const {
  std::vector<AdapterSource> sources;
  for (const std::string& adapter : adapters_) {
    const std::size_t end = adapter.find('=');
    if (end == std::string::npos || end == 0 || end + 1 == adapter.size()) {
      return Error{ErrorCode::kInvalidArgument, "--adapter must be NAME=DIR (got " + adapter + ")"};
    }
    sources.push_back({adapter.substr(0, end), adapter.substr(end + 1)});
  }
  return sources;
}

CommandFiles ModelFlags::files() const {
  CommandFiles files = tier_flags_.files();
  const std::vector<NamedFile> model = files_of_model("--model", directory_);
  files.read.insert(files.read.end(), model.begin(), model.end());
  return files;
}

Result<std::unique_ptr<RankGroup>> ModelFlags::open_ranks() const {
  if (ranks_ == 1) return std::unique_ptr<RankGroup>();
  return open_mpi_ranks(ranks_);
}

Result<ServedModelOptions> ModelFlags::options() const {
  STEMMA_RETURN_IF_ERROR(check());
  ServedModelOptions options;
  options.directory = directory_;
  STEMMA_ASSIGN_OR_RETURN(options.kv_bytes, parse_bytes(kv_bytes_, "--kv-bytes"));
  options.weights = weights_;
  options.kv_dtype = kv_dtype_;
  options.windowed_share = windowed_share_;
  options.kv_layout = kv_layout_;
  options.attention = attention_;
  options.threads = threads_ != 0 ? threads_ : busy_threads();
  options.pinning = pin_threads_ == "auto" ? ThreadPinning::kWorkers : ThreadPinning::kOff;
  KvCacheOptions& kv = options.engine.kv;
  kv.page_size = page_size_;
  kv.requests_max = concurrency_;
  kv.context_tokens_max = context_tokens_;
  kv.cache = cache_;
  kv.eviction = eviction_;
  SchedulerOptions& scheduler = options.engine.scheduler;
  scheduler.chunk_tokens_max = chunk_tokens_;
  scheduler.step_tokens_max = std::max(chunk_tokens_, concurrency_);
  STEMMA_ASSIGN_OR_RETURN(scheduler.policy, parse_schedule_policy(policy_));
  if (low_first_) scheduler.priority_rule = PriorityRule::kLowFirst;
  if (!date_.empty()) {
    const Result<std::int64_t> day = begin_of_day(date_);
    if (!day.ok()) return Error{day.error().code, "--date " + day.error().detail};
    options.time_s = [day_s = *day] { return day_s; };
  }
  STEMMA_ASSIGN_OR_RETURN(options.sparse, sparse_flags_.options());
  STEMMA_ASSIGN_OR_RETURN(options.adapters, adapters());
  STEMMA_RETURN_IF_ERROR(tier_flags_.apply(options));
  if (cache_ == "none" && options.engine.shadow_audit_percent > 0) {
    return Error{ErrorCode::kInvalidArgument,
                 "--shadow-audit needs --cache radix: without a cache nothing is found in it"};
  }
  if (isatty(STDERR_FILENO) != 0) options.progress = show_progress;
  return options;
}

}  // namespace stemma
