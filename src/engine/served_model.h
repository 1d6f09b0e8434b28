// ServedModel: all that stands between a model's directory and an Engine: weights, tokenizer, chat
// template, sampling defaults, a pool of the right shape, and the namespace that its pages are
// found in.
//
// Thread:     opened and used by one thread; encode and render are const.
// Memory:     the weights and the whole pool, both at open.
// Cost:       open reads every weight once.
// Not here:   the step loop (Engine), requests of users (cli/, server/).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/thread_pool.h"
#include "engine/served_tiers.h"
#include "grammar/grammar_book.h"
#include "model/adapter_book.h"
#include "model/device_backend.h"
#include "model/generation_config.h"
#include "model/leading_runner.h"
#include "model/loaded_runner.h"
#include "model/model_runner.h"
#include "model/tokenizer.h"
#include "stemma/engine.h"
#include "stemma/kv_pool.h"
#include "stemma/options.h"
#include "stemma/result.h"
#include "template/chat_template.h"
#include "tier/leading_tiers.h"

namespace stemma {

// Whether it is from a hundredth to 1: pages of the other layers, or their names where there are
// none, take memory too.
Status check_windowed_share(double share);

struct ServedModelOptions {
  std::string directory;
  // What it is computed on; nullptr: CPUs. Must outlive the model.
  DeviceBackend* backend = nullptr;
  std::int64_t kv_bytes = std::int64_t{256} << 20;  // of keys and values, all layers
  // Windowed pages for each page of the other layers, where some have a window: more let more of
  // what is cached be gone on from, fewer leave room for more of it.
  double windowed_share = 0.5;
  // auto: that of the weights; or f32, f16, bf16, fp8_e4m3 (fp8), fp8_e5m2, int8.
  std::string kv_dtype = "auto";
  std::string weights = "auto";  // as the files have them; or int8, int4
  std::string kv_layout = "layer_first";
  std::string attention = "cpu";
  std::optional<SparseOptions> sparse;    // nothing: every row attends to everything
  AttentionDecorator decorate_attention;  // may be empty
  std::vector<AdapterSource> adapters;    // that requests may name
  int threads = 1;
  ThreadPinning pinning = ThreadPinning::kWorkers;
  ServedTierOptions tiers;
  // Now, in seconds since 1970, to chat templates that print the date; empty: the system's clock.
  std::function<std::int64_t()> time_s;
  // Ranks that serve it together: rank 0 has the engine, the others follow. kv_bytes and threads
  // are each rank's own. nullptr: this process alone. Must outlive the model.
  RankGroup* ranks = nullptr;
  // kv.pages is computed; kv.context_tokens_max 0: the model's own; scheduler.scored_tokens_max 0:
  // kScoredTokens.
  EngineOptions engine;
  ProgressCallback progress;
};

// Prompt tokens of a step whose logits are kept, for RequestSpec::prompt_logprobs: 32 MiB of them
// with the 128k tokens of a large vocabulary.
inline constexpr std::int64_t kScoredTokens = 64;

class ServedModel {
 public:
  // Errors are one line that names the file and the field, or the flag. Of several ranks all open
  // it, and all get an error if one has any.
  static Result<std::unique_ptr<ServedModel>> open(const ServedModelOptions& options);

  // An engine on this model; `runner` stands between it and the model if it is given (a recorder,
  // say), and `observer` is told of its requests. The engine must not outlive this; where there are
  // lower tiers, one at a time may live. REQUIRES: not of several ranks, or on rank 0.
  Result<std::unique_ptr<Engine>> open_engine(Runner* runner_or_null = nullptr,
                                              RequestObserver* observer_or_null = nullptr);

  // Computes what the engine of rank 0 asks for, until the model of rank 0 is destroyed.
  // REQUIRES: of several ranks, and not on rank 0.
  Status follow();
  // Whether others do not lead this rank.
  bool leads() const noexcept { return ranks_ == nullptr || ranks_->rank() == 0; }

  // A conversation as the model's own template writes it, tokenised. The template's text gets no
  // second token of beginning; a date in it is today's, where the options give none. kUnsupported
  // if the model has no template.
  Result<std::vector<TokenId>> encode_messages(const TemplateJson& messages,
                                               RenderOptions options = {}) const;
  // That of chats with tools, or without; nullptr where encode_messages refuses them.
  const ChatTemplate* chat_template_or_null(bool has_tools) const {
    return chat_templates_.has_value() ? chat_templates_->find_or_null(has_tools) : nullptr;
  }
  // A plain text, with the special tokens that the tokenizer puts around one, or without.
  Result<std::vector<TokenId>> encode_text(std::string_view text,
                                           bool add_special_tokens = true) const;

  // What an engine is to compute its batches with: of several ranks, with all of them.
  Runner& batch_runner() noexcept;
  LoadedRunner& runner() noexcept { return *runner_; }
  const LoadedRunner& runner() const noexcept { return *runner_; }
  std::int64_t vocab_tokens() const { return runner_->config().vocab_tokens; }
  const Tokenizer& tokenizer() const noexcept { return *tokenizer_; }
  // For outputs that have a form. Any thread.
  GrammarBook& grammars() const noexcept { return *grammars_; }
  const GenerationConfig& generation() const noexcept { return generation_; }
  const EngineOptions& engine_options() const noexcept { return engine_options_; }
  // Of a request, prompt and output, at most.
  std::int64_t context_tokens() const;
  const KvPool& pool() const noexcept { return *pool_; }
  KvPool& pool() noexcept { return *pool_; }
  // Of the layers that look back over a window; nullptr: there are none.
  KvPool* windowed_pool_or_null() noexcept { return windowed_pool_.get(); }
  // Those that requests may name. Any thread.
  const AdapterBook& adapters() const { return *runner_->adapters(); }
  // Reads one, on a thread of the caller's own, while requests are computed; then between two steps
  // of the engine requests may name it. kUnsupported where there are several ranks; other errors
  // are those of LoadedRunner.
  Result<Adapter> read_adapter(const AdapterSource& source) const;
  Status place_adapter(Adapter adapter, bool in_place = false);
  // See LoadedRunner. Between two steps of the engine.
  Status take_out_adapter(std::string_view name);
  void drop_ended_adapters() { runner_->drop_ended_adapters(); }
  // Of the model, its formats and its arithmetic: a request of a tenant adds to it, and the engine
  // the request's adapter. On a rank that others lead, that of its part.
  const NamespaceDigest& namespace_digest() const noexcept { return namespace_digest_; }
  // Where requests in it with this adapter are found.
  NamespaceDigest namespace_digest(const AdapterIdentity& adapter) const;

  ServedModel(int threads, ThreadPinning pinning) : threads_(threads, pinning) {}

 private:
  static Result<std::unique_ptr<ServedModel>> open_own(const ServedModelOptions& options);
  Status load_files(const ServedModelOptions& options);
  void show_answer_marks();
  Status add_end_token(const std::string& directory);
  Status open_pools(const ServedModelOptions& options);
  Status count_pages(const ServedModelOptions& options, KvShape& full, KvShape& windowed);
  Status open_tiers(const ServedModelOptions& options);
  Status join(RankGroup& ranks, std::string_view tier_codec);
  Status check_adapters_change() const;
  void describe_tiers();
  void describe_adapter(const AdapterIdentity& adapter);
  // The namespace of what this rank has of pages that rank 0 finds in `leading`.
  NamespaceDigest own_part(const NamespaceDigest& leading) const;

  MonotonicClock clock_;
  ThreadPool threads_;
  EngineOptions engine_options_;
  std::unique_ptr<LoadedRunner> runner_;
  std::optional<Tokenizer> tokenizer_;
  std::unique_ptr<GrammarBook> grammars_;
  std::optional<ChatTemplates> chat_templates_;
  std::function<std::int64_t()> time_s_;
  GenerationConfig generation_;
  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<KvPool> windowed_pool_;        // nullptr: no layer has a window
  std::string description_;                      // of the namespace, for people
  std::unique_ptr<LowerTiers> tiers_;            // this rank's; nullptr: none
  NamespaceDigest leading_digest_;               // rank 0's
  NamespaceDigest namespace_digest_;             // of this rank's part
  RankGroup* ranks_ = nullptr;                   // nullptr: it computes alone
  std::unique_ptr<LeadingRunner> leader_;        // on rank 0 of several
  std::unique_ptr<LeadingTiers> leading_tiers_;  // likewise, where there are tiers
};

}  // namespace stemma
