// stemma._stemma.Engine: a model that answers lists of prompts, which stemma.LLM is made of.
#include <pybind11/stl.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/json_text.h"
#include "base/own_process.h"
#include "base/prng.h"
#include "bindings/python/binding.h"
#include "bindings/python/prompt_run.h"
#include "cuda/named_backend.h"
#include "engine/served_model.h"
#include "grammar/text_form.h"
#include "openai/completion_request.h"
#include "openai/field_reader.h"

namespace stemma::python {

namespace {

// How long the end of an engine waits for pages on their way to lower tiers, at most.
constexpr std::chrono::seconds kSettleTime(30);

// A model, its engine, and whose turn it is.
struct LlmCore {
  OwnProcess opened_in;
  std::mutex mutex;
  std::atomic<std::thread::id> answering;  // whose turn may call handlers of signals
  std::unique_ptr<DeviceBackend> backend;  // nullptr: CPUs
  std::unique_ptr<ServedModel> model;
  std::unique_ptr<Engine> engine;  // nullptr, as the model: closed
  RequestRules chats;              // that chats are read by
  GenerationConfig generation;     // the model's, and its namespace: they outlive it
  NamespaceDigest digest;
  std::int64_t context_tokens = 0;

  ~LlmCore() { close(); }
  void close() {
    assume_role(engine_thread);
    if (engine != nullptr && engine->idle()) engine->settle(kSettleTime);
    engine.reset();
    model.reset();
  }
  void check_open() const {
    if (engine == nullptr) refuse("the engine is closed");
  }
};

// JSON of the caller's. What is wrong with it is an argument, and no file that was damaged.
TemplateJson json_argument(const std::string& text, const char* name, const JsonLimits& limits) {
  Result<TemplateJson> parsed = parse_ordered_json(text, name, limits);
  if (parsed.ok()) return std::move(parsed).value();
  const bool is_json = parsed.error().code != ErrorCode::kCorrupt;
  fail({is_json ? parsed.error().code : ErrorCode::kInvalidArgument, parsed.error().detail});
}

// As in_turn of binding.h. A handler of signals that calls what it interrupted would wait for
// itself.
template <typename Work>
auto in_turn(LlmCore& core, bool is_long, Work&& work) {
  if (!core.opened_in.is_here()) refuse_child("the engine");
  if (core.answering.load() == std::this_thread::get_id()) {
    refuse("the engine is answering: a handler of signals cannot call it meanwhile");
  }
  return python::in_turn(core.mutex, is_long, std::forward<Work>(work), InChild::kIsNot);
}

class LocalEngine {
 public:
  explicit LocalEngine(std::unique_ptr<LlmCore> core) : core_(std::move(core)) {}
  LocalEngine(LocalEngine&&) = default;
  ~LocalEngine() {
    const OthersRun others_run;
    core_.reset();
  }

  std::vector<TokenId> encode(const std::string& text) const {
    return in_turn(*core_, true, [&] {
      core_->check_open();
      return value_of(core_->model->encode_text(text));
    });
  }
  // What the server reads of a chat: messages, tools, what templates are told, and how it ends.
  std::vector<TokenId> encode_chat(const std::string& json) const {
    TemplateJson chat = json_argument(json, "chat", {.depth_max = 64, .keeps_wide_integers = true});
    if (!chat.is_object()) refuse("chat: must be an object");
    narrow_what_is_read(chat);
    return in_turn(*core_, true, [&] {
      core_->check_open();
      std::optional<ApiError> fault;
      FieldReader fields(chat, "", fault);
      CompletionRequest request;
      read_chat_text(fields, core_->chats, fault, request);
      if (fault.has_value()) refuse(fault->message);
      return value_of(core_->model->encode_messages(request.messages, render_options_of(request)));
    });
  }
  py::list run(const py::list& prompts);
  void load_adapter(const std::string& name, const std::string& directory, bool in_place) {
    check_zero_free(directory, "directory");
    in_turn(*core_, true, [&] {
      core_->check_open();
      Adapter adapter = value_of(core_->model->read_adapter({name, directory}));
      check(core_->model->place_adapter(std::move(adapter), in_place));
      core_->model->drop_ended_adapters();
    });
  }
  void unload_adapter(const std::string& name) {
    in_turn(*core_, true, [&] {
      core_->check_open();
      check(core_->model->take_out_adapter(name));
      core_->model->drop_ended_adapters();
    });
  }
  py::dict stats() const;
  void close() {
    if (core_->opened_in.is_here()) in_turn(*core_, true, [this] { core_->close(); });
  }

 private:
  Wish wish_of(const py::dict& prompt, std::uint64_t seed) const;
  static TextForm form_of(const py::dict& prompt);
  SamplingParams sampling_of(const py::dict& prompt) const;

  OwnedInProcess<LlmCore> core_;
};

// Any number of 64 bits; below 0, as the server takes it.
std::optional<std::uint64_t> seed_of(const py::dict& prompt) {
  const py::object seed = prompt["seed"];
  if (seed.is_none()) return std::nullopt;
  if (py::isinstance<py::int_>(seed) && seed < py::int_(0)) {
    return static_cast<std::uint64_t>(field<std::int64_t>(prompt, "seed"));
  }
  return field<std::uint64_t>(prompt, "seed");
}

// A number that is kept as a float, which cannot tell from infinity what is out of its range.
float number_as(const py::handle& value, const std::string& name) {
  const auto number = value_as<double>(value, name);
  if (std::isfinite(number) && std::fabs(number) > std::numeric_limits<float>::max()) {
    refuse(name + ": out of its range");
  }
  return static_cast<float>(number);
}

// Of tokens.
std::vector<std::pair<TokenId, float>> biases_of(const py::handle& pairs, const char* name) {
  using Pairs = std::vector<std::pair<TokenId, py::object>>;
  std::vector<std::pair<TokenId, float>> biases;
  for (const auto& [token, bias] : value_as<Pairs>(pairs, name)) {
    biases.emplace_back(token, number_as(bias, name));
  }
  return biases;
}

SamplingParams LocalEngine::sampling_of(const py::dict& prompt) const {
  SamplingParams sampling = core_->generation.sampling_defaults();
  const auto take = [&prompt](const char* name, auto& into) {
    if (!prompt.contains(name) || prompt[name].is_none()) return;
    using Into = std::remove_reference_t<decltype(into)>;
    if constexpr (std::is_same_v<Into, float>) {
      into = number_as(prompt[name], name);
    } else {
      into = field<Into>(prompt, name);
    }
  };
  take("temperature", sampling.temperature);
  take("top_k", sampling.top_k);
  take("top_p", sampling.top_p);
  take("min_p", sampling.min_p);
  take("repetition_penalty", sampling.repetition_penalty);
  take("presence_penalty", sampling.presence_penalty);
  take("frequency_penalty", sampling.frequency_penalty);
  if (!prompt["logit_bias"].is_none()) {
    sampling.logit_bias = biases_of(prompt["logit_bias"], "logit_bias");
  }
  take("allowed_token_ids", sampling.allowed_tokens);
  if (sampling.allowed_tokens.empty() && !prompt["allowed_token_ids"].is_none()) {
    refuse("allowed_token_ids: must have at least one token");
  }
  sampling.seed = seed_of(prompt);
  sampling.top_k = std::max<std::int64_t>(sampling.top_k, 0);  // -1 is all elsewhere
  return sampling;
}

TextForm LocalEngine::form_of(const py::dict& prompt) {
  TextForm form;
  const auto take = [&](const char* name, TextForm::Kind kind) {
    if (prompt[name].is_none()) return false;
    if (form.kind != TextForm::Kind::kFree) refuse(std::string(name) + ": not with " + form.path);
    form.kind = kind;
    form.path = name;
    return true;
  };
  const auto take_json = [&](const char* name, TextForm::Kind kind) {
    if (!take(name, kind)) return;
    form.schema = json_argument(field<std::string>(prompt, name), name, {.depth_max = 64});
  };
  take_json("json_schema", TextForm::Kind::kSchema);
  take_json("structural_tag", TextForm::Kind::kTag);
  if (take("regex", TextForm::Kind::kRegex)) form.expression = field<std::string>(prompt, "regex");
  if (take("grammar", TextForm::Kind::kEbnf)) form.rules = field<std::string>(prompt, "grammar");
  if (take("choice", TextForm::Kind::kOneOf)) {
    form.texts = field<std::vector<std::string>>(prompt, "choice");
    if (form.texts.empty()) refuse("choice: must have at least one text");
  }
  return form;
}

Wish LocalEngine::wish_of(const py::dict& prompt, std::uint64_t seed) const {
  Wish wish;
  const NumberText tokens(prompt["prompt_token_ids"], "prompt_token_ids");
  wish.spec.prompt.assign(tokens.numbers().begin(), tokens.numbers().end());
  wish.spec.sampling = sampling_of(prompt);
  if (!wish.spec.sampling.seed.has_value()) wish.spec.sampling.seed = seed;
  const auto max_tokens = field<std::optional<std::int64_t>>(prompt, "max_tokens");
  const std::int64_t room = core_->context_tokens - std::ssize(wish.spec.prompt);
  wish.spec.max_tokens = max_tokens.value_or(std::max<std::int64_t>(room, 1));
  wish.spec.copies = field<std::int64_t>(prompt, "n");
  wish.text = {.stop = field<std::vector<std::string>>(prompt, "stop"),
               .shows_stop = field<bool>(prompt, "include_stop_str_in_output"),
               .skip_special_tokens = field<bool>(prompt, "skip_special_tokens"),
               .goes_on = field<bool>(prompt, "goes_on"),
               .stop_tokens = field<std::vector<TokenId>>(prompt, "stop_token_ids"),
               .min_tokens = field<std::int64_t>(prompt, "min_tokens")};
  wish.spec.stop_tokens = wish.text.stop_tokens;
  if (!field<bool>(prompt, "ignore_eos")) {
    const auto& ends = core_->generation.eos_token_ids;
    wish.spec.stop_tokens.insert(wish.spec.stop_tokens.end(), ends.begin(), ends.end());
  }
  wish.spec.logprobs = field<std::optional<std::int64_t>>(prompt, "logprobs");
  wish.spec.prompt_logprobs = field<std::optional<std::int64_t>>(prompt, "prompt_logprobs");
  wish.spec.prompt_logprobs_from = field<std::int64_t>(prompt, "logprob_start_len");
  wish.spec.adapter = field<std::string>(prompt, "adapter");
  wish.spec.namespace_digest = core_->digest;
  wish.spec.min_tokens = wish.text.min_tokens;
  check(StopStrings::validate(wish.text.stop));
  wish.form = form_of(prompt);
  return wish;
}

// Tuples of token, logprob, rank and text.
py::list to_python(const std::vector<Chances>& tokens) {
  py::list out;
  for (const Chances& chances : tokens) {
    py::list row;
    for (const Chance& chance : chances) {
      const TokenLogprob& entry = chance.entry;
      row.append(py::make_tuple(entry.token, entry.logprob, entry.rank, chance.text));
    }
    out.append(row);
  }
  return out;
}

py::object to_python(const StopReason& reason) {
  if (const auto* const text = std::get_if<std::string>(&reason)) return py::str(*text);
  if (const auto* const token = std::get_if<TokenId>(&reason)) return py::int_(*token);
  return py::none();
}

py::dict to_python(const Output& output) {
  py::dict out;
  out["prompt"] = output.prompt;
  out["token_ids"] = output.tokens;
  out["text"] = output.text;
  out["logprobs"] = to_python(output.chances);
  out["prompt_logprobs"] = to_python(output.prompt_chances);
  out["finish_reason"] = finish_reason_name(output.finish);
  out["stop_reason"] = to_python(output.stop_reason);
  out["prompt_tokens"] = output.stats.prompt_tokens;
  out["cached_tokens"] = output.stats.cached_tokens;
  out["ttft_us"] = output.stats.ttft_us;
  out["total_us"] = output.stats.total_us;
  return out;
}

py::list LocalEngine::run(const py::list& prompts) {
  std::vector<Wish> wishes;
  for (const py::handle prompt : prompts) {
    try {
      wishes.push_back(wish_of(prompt.cast<py::dict>(), mix64(wishes.size())));
    } catch (const Failure& failure) {
      fail_prompt(wishes.size(), failure.error());
    }
  }
  const std::vector<Output> outputs = in_turn(*core_, true, [&] {
    core_->check_open();
    assume_role(engine_thread);
    const LongWork work(core_->answering);
    for (std::size_t at = 0; at < wishes.size(); ++at) {
      auto constraint = open_text_form(wishes[at].form, core_->model->grammars());
      if (!constraint.ok()) fail_prompt(at, constraint.error());
      wishes[at].spec.constraint = std::move(constraint).value();
    }
    PromptRun run(*core_->model, *core_->engine);
    run.answer(std::move(wishes));
    return run.take();
  });
  py::list out;
  for (const Output& output : outputs) {
    if (output.finish == FinishReason::kFailed) fail(output.error);
    out.append(to_python(output));
  }
  return out;
}

py::dict LocalEngine::stats() const {
  const EngineTotals totals = in_turn(*core_, false, [this] {
    core_->check_open();
    return core_->engine->totals();
  });
  py::dict out;
  out["steps"] = totals.steps;
  out["prompt_tokens"] = totals.prompt_tokens;
  out["cached_tokens"] = totals.cached_tokens;
  out["computed_prompt_tokens"] = totals.computed_prompt_tokens;
  out["output_tokens"] = totals.output_tokens;
  out["evicted_pages"] = totals.evicted_pages;
  out["preemptions"] = totals.preemptions;
  return out;
}

// Directories by the name that requests call them.
std::map<std::string, std::string> adapters_of(const py::dict& options) {
  if (!options.contains("adapters")) return {};
  return field<std::map<std::string, std::string>>(options, "adapters");
}

LocalEngine open_engine(const std::string& model, const py::dict& options) {
  ServedModelOptions wanted;
  check_zero_free(model, "model");
  wanted.directory = model;
  const auto take = [&options](const char* name, auto& into) {
    if (!options.contains(name)) return;
    using Into = std::remove_reference_t<decltype(into)>;
    into = field<Into>(options, name);
    if constexpr (std::is_same_v<Into, std::string>) check_zero_free(into, name);
  };
  take("kv_bytes", wanted.kv_bytes);
  take("kv_dtype", wanted.kv_dtype);
  take("weights", wanted.weights);
  take("threads", wanted.threads);
  take("page_size", wanted.engine.kv.page_size);
  if (wanted.engine.kv.page_size < 1) refuse("page_size: must be at least 1");
  take("requests_max", wanted.engine.kv.requests_max);
  wanted.engine.kv.context_tokens_max = 0;  // the model's own, unless said
  take("context_tokens_max", wanted.engine.kv.context_tokens_max);
  take("cache", wanted.engine.kv.cache);
  take("eviction", wanted.engine.kv.eviction);
  take("waiting_max", wanted.engine.scheduler.waiting_max);
  wanted.engine.inbox_max = wanted.engine.scheduler.waiting_max;
  take("host_bytes", wanted.tiers.host_bytes);
  take("disk_directory", wanted.tiers.disk_directory);
  take("disk_bytes", wanted.tiers.disk_bytes);
  take("load_wait_us", wanted.engine.kv.tiers.load_wait_us);
  for (const auto& [name, directory] : adapters_of(options)) {
    check_zero_free(directory, "adapters");
    wanted.adapters.push_back({name, directory});
  }
  std::string device = "cpu";
  CudaRunnerOptions on_gpu;
  take("device", device);
  take("deterministic", on_gpu.deterministic);
  const OthersRun others_run;
  auto core = std::make_unique<LlmCore>();
  core->backend = value_of(open_named_backend(device, on_gpu));
  wanted.backend = core->backend.get();
  core->model = value_of(ServedModel::open(wanted));
  core->engine = value_of(core->model->open_engine());
  core->generation = core->model->generation();
  core->digest = core->model->namespace_digest();
  core->context_tokens = core->model->context_tokens();
  core->chats = rules_of_templates(core->model->chat_template_or_null(/*has_tools=*/false),
                                   core->model->chat_template_or_null(/*has_tools=*/true));
  return LocalEngine(std::move(core));
}

}  // namespace

void bind_llm(py::module_& module) {
  py::class_<LocalEngine>(module, "Engine", "A model and its cache.")
      .def(py::init(&open_engine), py::arg("model"), py::arg("options"))
      .def("encode", &LocalEngine::encode, py::arg("text"))
      .def("encode_chat", &LocalEngine::encode_chat, py::arg("json"))
      .def("run", &LocalEngine::run, py::arg("prompts"))
      .def("load_adapter", &LocalEngine::load_adapter, py::arg("name"), py::arg("directory"),
           py::arg("in_place"))
      .def("unload_adapter", &LocalEngine::unload_adapter, py::arg("name"))
      .def("stats", &LocalEngine::stats)
      .def("close", &LocalEngine::close);
}

}  // namespace stemma::python
