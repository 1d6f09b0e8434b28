#include "engine/served_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/math.h"
#include "base/thread_count.h"
#include "base/wall_clock.h"
#include "engine/served_ranks.h"
#include "pool/kv_pool_factory.h"
#include "prefix/namespace_digest.h"
#include "stemma/log.h"
#include "template/answer_marks.h"
#include "template/template_date.h"

namespace stemma {

namespace {

Result<DType> kv_dtype(const std::string& name, const ModelConfig& config) {
  if (name == "auto") return config.weights_dtype.value_or(DType::kF32);
  Result<DType> parsed = parse_kv_dtype(name);
  if (!parsed.ok()) return Error{parsed.error().code, "--kv-dtype: " + parsed.error().detail};
  return parsed;
}

DeviceBackend& backend_of(const ServedModelOptions& options) {
  return options.backend != nullptr ? *options.backend : cpu_backend();
}

// The same fields for people: what to look at where two namespaces differ. Long ones come last, as
// stores cut a description off somewhere.
std::string description_of(const LoadedRunner& runner, const KvPool& pool,
                           const std::string& codec) {
  std::string text = "kv_dtype=" + std::string(dtype_name(pool.shape().dtype));
  text += " kv_kind=" + std::string(kv_kind_name(pool.shape().kind));
  if (codec != "plain") text += " tier_codec=" + codec;
  text += " page_size=" + std::to_string(pool.shape().page_size);
  auto fields = runner.namespace_fields();
  std::stable_sort(fields.begin(), fields.end(), [](const auto& one, const auto& other) {
    return one.second.size() < other.second.size();
  });
  for (const auto& [name, value] : fields) text.append(" ").append(name).append("=").append(value);
  return text;
}

NamespaceDigest digest_of(const LoadedRunner& runner, const KvPool& pool,
                          const std::string& codec) {
  NamespaceFields fields;
  for (const auto& [name, value] : runner.namespace_fields()) {
    fields.add(name, std::string_view(value));
  }
  fields.add("kv_dtype", dtype_name(pool.shape().dtype));
  fields.add("kv_kind", kv_kind_name(pool.shape().kind));
  // Pages that were packed are not those that were computed, on the device neither.
  if (codec != "plain") fields.add("tier_codec", std::string_view(codec));
  // Keys of pages differ with it anyway; so does the namespace, that pages nobody can find any more
  // are seen to be another's.
  fields.add("page_size", pool.shape().page_size);
  return fields.finish();
}

Error below(std::string_view name, std::int64_t least, std::int64_t value) {
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("{} must be at least {} (got {})", name, least, value)};
}

// The engine's options but what the model and its bytes say: its pages, its context where none was
// named.
Status check_engine(EngineOptions options) {
  options.kv.pages = 1;
  options.kv.window_tokens = options.kv.windowed_pages = 0;
  if (options.kv.context_tokens_max == 0) options.kv.context_tokens_max = 2;
  return validate(options);
}

// What is wrong before a model is loaded; the rest of the engine's options is checked with it.
Status check(const ServedModelOptions& options) {
  if (const Status checked = check_threads(options.threads); !checked.ok()) {
    return Error{checked.error().code, "--" + checked.error().detail};
  }
  if (options.tiers.codec != "plain" && options.engine.shadow_audit_percent > 0) {
    return Error{ErrorCode::kInvalidArgument,
                 "--shadow-audit needs --tier-codec plain: packed pages never come back equal"};
  }
  if (options.tiers.codec != "plain" && options.sparse.has_value()) {
    return Error{ErrorCode::kInvalidArgument,
                 "--tier-codec " + options.tiers.codec +
                     ": sparse attention needs plain, for labels are the very bits of keys"};
  }
  const KvCacheOptions& kv = options.engine.kv;
  if (kv.page_size < 1) return below("page_size", 1, kv.page_size);
  if (kv.context_tokens_max < 0) return below("context_tokens_max", 0, kv.context_tokens_max);
  if (options.tiers.host_bytes < 0) return below("host_bytes", 0, options.tiers.host_bytes);
  return check_engine(options.engine);
}

}  // namespace

Status check_windowed_share(double share) {
  constexpr double kLeast = 0.01;
  if (share >= kLeast && share <= 1) return {};
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("--windowed-share must be from {} to 1 (got {})", kLeast, share)};
}

Result<std::unique_ptr<ServedModel>> ServedModel::open(const ServedModelOptions& options) {
  Result<std::unique_ptr<ServedModel>> model = open_own(options);
  if (options.ranks != nullptr) {
    STEMMA_RETURN_IF_ERROR(agree(*options.ranks, model.ok() ? Status() : Status(model.error())));
    STEMMA_RETURN_IF_ERROR((*model)->join(*options.ranks, options.tiers.codec));
  }
  if (model.ok()) (*model)->describe_tiers();
  return model;
}

// Pages of all ranks are found by rank 0's namespace; in stores each rank has its own (I7).
Status ServedModel::join(RankGroup& ranks, std::string_view tier_codec) {
  STEMMA_RETURN_IF_ERROR(agree_on_terms(ranks, rank_terms({.runner = *runner_,
                                                           .pool = *pool_,
                                                           .tiers_or_null = tiers_.get(),
                                                           .options = engine_options_,
                                                           .tier_codec = tier_codec})));
  STEMMA_ASSIGN_OR_RETURN(leading_digest_, leading_namespace(ranks, leading_digest_));
  ranks_ = &ranks;
  namespace_digest_ = own_part(leading_digest_);
  STEMMA_RETURN_IF_ERROR(runner_->meet_ranks());
  if (!leads()) return {};
  leader_ = std::make_unique<LeadingRunner>(*runner_, ranks);
  if (tiers_ != nullptr) leading_tiers_ = std::make_unique<LeadingTiers>(*tiers_, ranks, clock_);
  return {};
}

Result<std::unique_ptr<ServedModel>> ServedModel::open_own(const ServedModelOptions& options) {
  STEMMA_RETURN_IF_ERROR(check(options));
  auto model = std::make_unique<ServedModel>(options.threads, options.pinning);
  model->engine_options_ = options.engine;
  std::int64_t& scored = model->engine_options_.scheduler.scored_tokens_max;
  if (scored == 0) scored = kScoredTokens;
  STEMMA_RETURN_IF_ERROR(model->load_files(options));
  STEMMA_RETURN_IF_ERROR(model->open_pools(options));
  const DType dtype = model->pool_->shape().dtype;
  if (options.tiers.codec != "plain" && is_scaled(dtype)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--tier-codec {}: --kv-dtype {} needs plain, for its pages are packed "
                             "already",
                             options.tiers.codec, dtype_name(dtype))};
  }
  model->leading_digest_ = digest_of(*model->runner_, *model->pool_, options.tiers.codec);
  model->namespace_digest_ = model->leading_digest_;
  STEMMA_RETURN_IF_ERROR(model->open_tiers(options));
  return model;
}

Status ServedModel::open_tiers(const ServedModelOptions& options) {
  ServedTierOptions tiers = options.tiers;
  if (options.ranks != nullptr) {
    tiers.rank = options.ranks->rank();
    tiers.ranks = options.ranks->ranks();
  }
  STEMMA_ASSIGN_OR_RETURN(tiers_,
                          open_served_tiers(tiers, *pool_, windowed_pool_.get(), threads_, clock_));
  description_ = description_of(*runner_, *pool_, options.tiers.codec);
  return {};
}

void ServedModel::describe_tiers() {
  if (tiers_ == nullptr) return;
  tiers_->describe(namespace_digest_, description_);
  for (const AdapterIdentity& adapter : adapters().list()) describe_adapter(adapter);
}

void ServedModel::describe_adapter(const AdapterIdentity& adapter) {
  if (tiers_ == nullptr) return;
  tiers_->describe(namespace_digest(adapter),
                   "adapter_sha256=" + to_hex(adapter.digest) + " " + description_);
}

Status ServedModel::load_files(const ServedModelOptions& options) {
  KvCacheOptions& kv = engine_options_.kv;
  ModelRunnerOptions runner_options;
  STEMMA_ASSIGN_OR_RETURN(runner_options.weights, parse_weight_rounding(options.weights));
  runner_options.attention = options.attention;
  runner_options.sparse = options.sparse;
  runner_options.adapters = options.adapters;
  runner_options.decorate_attention = options.decorate_attention;
  runner_options.rows_max = engine_options_.scheduler.step_tokens_max;
  runner_options.outputs_max = kv.requests_max + engine_options_.scheduler.scored_tokens_max;
  runner_options.requests_max = kv.requests_max;
  runner_options.context_tokens_max = kv.context_tokens_max;
  runner_options.ranks = options.ranks;
  runner_options.progress = options.progress;
  STEMMA_ASSIGN_OR_RETURN(
      runner_, backend_of(options).load_model(options.directory, runner_options, threads_));
  kv.context_tokens_max = runner_->context_tokens_max();
  STEMMA_ASSIGN_OR_RETURN(tokenizer_, Tokenizer::load(options.directory));
  STEMMA_ASSIGN_OR_RETURN(chat_templates_, load_chat_templates(options.directory));
  show_answer_marks();
  grammars_ = std::make_unique<GrammarBook>(*tokenizer_, vocab_tokens());
  time_s_ = options.time_s;
  if (!time_s_) time_s_ = [] { return static_cast<std::int64_t>(wall_clock_seconds()); };
  STEMMA_ASSIGN_OR_RETURN(generation_, load_generation_config(options.directory));
  return add_end_token(options.directory);
}

// Before anybody asks which bytes a token writes.
void ServedModel::show_answer_marks() {
  for (const bool has_tools : {false, true}) {
    const ChatTemplate* const chat = chat_template_or_null(has_tools);
    if (chat == nullptr) continue;
    for (const std::string_view mark : answer_marks_in(chat->source())) tokenizer_->show(mark);
  }
}

// What the tokenizer's own file calls the end is one too; a template has read it there. Files name
// tokens that a model of few does not have: it never gives them.
Status ServedModel::add_end_token(const std::string& directory) {
  SpecialTokens special;
  if (chat_templates_.has_value()) {
    special = chat_templates_->plain().special_tokens();
  } else {
    STEMMA_ASSIGN_OR_RETURN(special, load_special_tokens(directory));
  }
  std::vector<TokenId>& ends = generation_.eos_token_ids;
  const auto end = special.eos_token ? tokenizer_->token_id(*special.eos_token) : std::nullopt;
  if (end.has_value() && !generation_.is_eos(*end)) ends.push_back(*end);
  const auto lacks = [&](TokenId token) { return token >= vocab_tokens(); };
  if (const auto lacking = std::ranges::find_if(ends, lacks); lacking != ends.end()) {
    STEMMA_LOG(kWarning, "model.end_tokens.dropped", kv("first", *lacking),
               kv("vocab_tokens", vocab_tokens()));
  }
  std::erase_if(ends, lacks);
  return {};
}

Status ServedModel::open_pools(const ServedModelOptions& options) {
  KvCacheOptions& kv = engine_options_.kv;
  KvShape full = runner_->pool_shape();
  KvShape windowed = runner_->windowed_pool_shape();
  full.page_size = windowed.page_size = kv.page_size;
  STEMMA_ASSIGN_OR_RETURN(full.dtype, kv_dtype(options.kv_dtype, runner_->config()));
  windowed.dtype = full.dtype;
  STEMMA_RETURN_IF_ERROR(count_pages(options, full, windowed));
  kv.pages = full.pages;
  kv.windowed_pages = windowed.pages;
  STEMMA_RETURN_IF_ERROR(validate(engine_options_));
  STEMMA_ASSIGN_OR_RETURN(const KvLayout layout, parse_kv_layout(options.kv_layout));
  STEMMA_ASSIGN_OR_RETURN(
      pool_, backend_of(options).make_pool(full, layout, threads_, runner_->heavy_channels()));
  if (windowed.pages > 0) {
    STEMMA_ASSIGN_OR_RETURN(windowed_pool_,
                            backend_of(options).make_pool(windowed, layout, threads_, {}));
  }
  return runner_->prepare_for({*pool_, windowed_pool_.get()});
}

// kv_bytes over both pools. Where every layer has a window a page of the other pool has no bytes,
// only a name for its text: there are as many as running requests and the cache can use.
Status ServedModel::count_pages(const ServedModelOptions& options, KvShape& full,
                                KvShape& windowed) {
  KvCacheOptions& kv = engine_options_.kv;
  // A window that is longer than any text of this server never moves.
  kv.window_tokens = std::min(runner_->config().windows.tokens, kv.context_tokens_max);
  if (kv.window_tokens == 0) {
    STEMMA_ASSIGN_OR_RETURN(full.pages, pages_for_bytes(options.kv_bytes, full));
    return {};
  }
  const double share = options.windowed_share;
  STEMMA_RETURN_IF_ERROR(check_windowed_share(share));
  const std::int64_t least = windowed_pages_max(kv.window_tokens, kv.page_size, 1);
  full.pages = 1;
  windowed.pages = least;
  for (const KvShape* shape : {&full, &windowed}) STEMMA_RETURN_IF_ERROR(validate(*shape));
  if (full.layers == 0) {
    STEMMA_ASSIGN_OR_RETURN(windowed.pages, pages_for_bytes(options.kv_bytes, windowed));
    full.pages = kv.requests_max * ceil_div(kv.context_tokens_max, kv.page_size) +
                 static_cast<std::int64_t>(static_cast<double>(windowed.pages) / share);
  } else {
    const double both =
        static_cast<double>(full.page_bytes()) + share * static_cast<double>(windowed.page_bytes());
    full.pages = static_cast<std::int64_t>(static_cast<double>(options.kv_bytes) / both);
    windowed.pages =
        std::max(least, static_cast<std::int64_t>(share * static_cast<double>(full.pages)));
    const std::int64_t left = options.kv_bytes - windowed.pages * windowed.page_bytes();
    full.pages = std::min(full.pages, left / full.page_bytes());
  }
  if (full.pages >= 1 && windowed.pages >= least) return {};
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("kv_bytes must hold a page of {} bytes and {} windowed ones of {}, a "
                           "window of {} tokens (got {})",
                           full.page_bytes(), least, windowed.page_bytes(), kv.window_tokens,
                           options.kv_bytes)};
}

Status ServedModel::check_adapters_change() const {
  if (ranks_ == nullptr) return {};
  return Error{ErrorCode::kUnsupported,
               "adapters of several ranks are those that all of them began with"};
}

Result<Adapter> ServedModel::read_adapter(const AdapterSource& source) const {
  STEMMA_RETURN_IF_ERROR(check_adapters_change());
  ThreadPool threads(1);
  return runner_->read_adapter(source, threads);
}

Status ServedModel::place_adapter(Adapter adapter, bool in_place) {
  const AdapterIdentity identity = {adapter.name, adapter.digest};
  STEMMA_RETURN_IF_ERROR(runner_->place_adapter(std::move(adapter), in_place));
  describe_adapter(identity);
  return {};
}

Status ServedModel::take_out_adapter(std::string_view name) {
  STEMMA_RETURN_IF_ERROR(check_adapters_change());
  return runner_->take_out_adapter(name);
}

NamespaceDigest ServedModel::namespace_digest(const AdapterIdentity& adapter) const {
  return own_part(adapted(leading_digest_, adapter.digest));
}

NamespaceDigest ServedModel::own_part(const NamespaceDigest& leading) const {
  return leads() ? leading : of_rank(leading, ranks_->rank());
}

Runner& ServedModel::batch_runner() noexcept {
  if (leader_ != nullptr) return *leader_;
  return *runner_;
}

Status ServedModel::follow() {
  const KvPools pools = {*pool_, windowed_pool_.get()};
  if (tiers_ == nullptr) return follow_leader(*runner_, pools, *ranks_);
  RankTransfers transfers(*tiers_, *ranks_, clock_);
  return follow_leader(*runner_, pools, *ranks_, {&transfers, &transfers});
}

Result<std::unique_ptr<Engine>> ServedModel::open_engine(Runner* runner_or_null,
                                                         RequestObserver* observer_or_null) {
  STEMMA_CHECK(leads(), "the engine is on rank 0");
  Runner& runner = runner_or_null != nullptr ? *runner_or_null : batch_runner();
  const EngineParts parts = {
      .runner = runner,
      .pools = {*pool_, windowed_pool_.get()},
      .vocab_tokens = runner_->config().vocab_tokens,
      .clock = clock_,
      .lower_tiers = leading_tiers_ != nullptr ? leading_tiers_.get() : tiers_.get(),
      .observer = observer_or_null};
  return Engine::open(engine_options_, parts);
}

// The last output is never an input: it needs no place.
std::int64_t ServedModel::context_tokens() const {
  const KvCacheOptions& kv = engine_options_.kv;
  return std::min(kv.context_tokens_max, kv.pages * kv.page_size + 1);
}

Result<std::vector<TokenId>> ServedModel::encode_messages(const TemplateJson& messages,
                                                          RenderOptions options) const {
  if (!chat_templates_.has_value()) {
    return Error{ErrorCode::kUnsupported,
                 "the model has no chat template (chat_template.jinja or tokenizer_config.json)"};
  }
  if (!options.strftime_now) {
    options.strftime_now = [&](std::string_view format) { return date_text(format, time_s_()); };
  }
  STEMMA_ASSIGN_OR_RETURN(const std::string text, chat_templates_->render(messages, options));
  return tokenizer_->encode(text, {.add_special_tokens = false, .parse_special_tokens = true});
}

Result<std::vector<TokenId>> ServedModel::encode_text(std::string_view text,
                                                      bool add_special_tokens) const {
  return tokenizer_->encode(
      text, {.add_special_tokens = add_special_tokens, .parse_special_tokens = true});
}

}  // namespace stemma
