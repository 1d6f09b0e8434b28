// stemma._stemma.Engine: a model that answers lists of prompts, which stemma.LLM is made of.
#include <pybind11/stl.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/own_process.h"
#include "base/prng.h"
#include "bindings/python/binding.h"
#include "cuda/named_backend.h"
#include "engine/served_model.h"
#include "engine/text_generation.h"
#include "grammar/text_form.h"
#include "model/detokenizer.h"
#include "model/json_text.h"

namespace stemma::python {

namespace {

// How long the end of an engine waits for pages on their way to lower tiers, at most.
constexpr std::chrono::seconds kSettleTime(30);

// What Python asks for in one prompt.
struct Wish {
  RequestSpec spec;
  TextRules text;
  TextForm form;
};

// A token as Python is told of it.
struct Chance {
  TokenLogprob entry;
  std::string text;
};
// Of a token of a text: its own, then those of the likeliest.
using Chances = std::vector<Chance>;

// One output of one prompt, while it comes and when it is whole.
struct Output {
  RequestId request;
  std::size_t prompt = 0;  // its place in the list
  std::vector<TokenId> tokens;
  std::string text;
  TextGeneration stream;
  std::size_t prompt_entries = 0;            // of a row of EngineEvent::prompt_logprobs
  std::vector<Chances> chances = {};         // of the output's tokens, where they are wanted
  std::vector<Chances> prompt_chances = {};  // from the prompt's second token on
  FinishReason finish = FinishReason::kNone;
  RequestStats stats;
  Error error;
};

// A model, its engine, and whose turn it is.
struct Core {
  OwnProcess opened_in;
  std::mutex mutex;
  std::atomic<std::thread::id> answering;  // whose turn may call handlers of signals
  std::unique_ptr<DeviceBackend> backend;  // nullptr: CPUs
  std::unique_ptr<ServedModel> model;
  std::unique_ptr<Engine> engine;  // nullptr, as the model: closed
  GenerationConfig generation;     // the model's, and its namespace: they outlive it
  NamespaceDigest digest;

  ~Core() { close(); }
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

// A list of prompts on its way through the engine.
class Run {
 public:
  Run(const ServedModel& model, Engine& engine) : model_(model), engine_(engine) {}

  // Answers all of them. Asks Python between steps whether it was interrupted.
  void answer(std::vector<Wish> wishes);
  std::vector<Output> take() { return std::move(outputs_); }

 private:
  void submit_some(std::vector<Wish>& wishes);
  void submit(Wish& wish);
  void take(const EngineEvent& event);
  void take_scores(const EngineEvent& event, Output& output) const;
  Chances chances_of(std::span<const TokenLogprob> entries) const;
  void end(Output& output, FinishReason reason, const RequestStats& stats);
  void cancel_all();

  const ServedModel& model_;
  Engine& engine_;
  std::vector<Output> outputs_;  // in the order of their requests
  std::size_t submitted_ = 0;    // prompts
  std::int64_t unfinished_ = 0;
};

// As many as may wait at a time.
void Run::submit_some(std::vector<Wish>& wishes) {
  const std::int64_t waiting_max = engine_.options().scheduler.waiting_max;
  while (submitted_ < wishes.size() &&
         (unfinished_ == 0 || unfinished_ + wishes[submitted_].spec.copies <= waiting_max)) {
    submit(wishes[submitted_]);
  }
}

void Run::submit(Wish& wish) {
  const std::int64_t copies = wish.spec.copies;
  const auto prompt_entries = 1 + static_cast<std::size_t>(wish.spec.prompt_logprobs.value_or(0));
  wish.text.goes_on = wish.text.goes_on && has_text(model_.tokenizer(), wish.spec.prompt);
  const Result<RequestId> id = engine_.submit(std::move(wish.spec));
  if (!id.ok()) {
    cancel_all();
    fail({id.error().code, "prompt " + std::to_string(submitted_) + ": " + id.error().detail});
  }
  for (std::int64_t copy = 0; copy < copies; ++copy) {
    outputs_.push_back({.request = RequestId(id->value() + copy),
                        .prompt = submitted_,
                        .tokens = {},
                        .text = {},
                        .stream = TextGeneration(model_.tokenizer(), wish.text),
                        .prompt_entries = prompt_entries,
                        .stats = {},
                        .error = {}});
  }
  unfinished_ += copies;
  ++submitted_;
}

// What was submitted before something was refused, or Python was interrupted.
void Run::cancel_all() {
  for (const Output& output : outputs_) {
    if (output.finish == FinishReason::kNone) {
      ignore_error(engine_.cancel(output.request), "it ends with the engine at the latest");
    }
  }
  while (!engine_.idle()) static_cast<void>(engine_.step());
}

void Run::answer(std::vector<Wish> wishes) {
  for (submit_some(wishes); unfinished_ > 0; submit_some(wishes)) {
    if (LongWork::must_end()) {
      cancel_all();
      throw ThreadEnds();
    }
    for (const EngineEvent& event : engine_.step().events) take(event);
    const PythonHeld python;
    if (PyErr_CheckSignals() == 0) continue;
    const py::error_already_set interrupted;
    cancel_all();
    throw interrupted;
  }
}

void Run::take(const EngineEvent& event) {
  const auto found = std::lower_bound(
      outputs_.begin(), outputs_.end(), event.request,
      [](const Output& output, RequestId request) { return output.request < request; });
  if (found == outputs_.end() || found->request != event.request) return;
  Output& output = *found;
  if (output.finish != FinishReason::kNone) return;
  take_scores(event, output);
  if (event.token >= 0) {
    output.tokens.push_back(event.token);
    if (!event.logprobs.empty()) output.chances.push_back(chances_of(event.logprobs));
    if (output.stream.push(event.token, output.text)) {
      const std::optional<RequestStats> stats = engine_.stop(event.request);
      return end(output, FinishReason::kStop, stats.value_or(event.stats));
    }
  }
  if (event.finish == FinishReason::kNone) return;
  output.stream.finish(output.text);
  output.error = event.error;
  end(output, event.finish, event.stats);
}

void Run::take_scores(const EngineEvent& event, Output& output) const {
  const std::span<const TokenLogprob> all = event.prompt_logprobs;
  for (std::size_t row = 0; row < all.size(); row += output.prompt_entries) {
    output.prompt_chances.push_back(chances_of(all.subspan(row, output.prompt_entries)));
  }
}

Chances Run::chances_of(std::span<const TokenLogprob> entries) const {
  Chances chances;
  for (const TokenLogprob& entry : entries) {
    chances.push_back({entry, text_behind_others(model_.tokenizer(), entry.token)});
  }
  return chances;
}

void Run::end(Output& output, FinishReason reason, const RequestStats& stats) {
  output.finish = reason;
  output.stats = stats;
  --unfinished_;
}

// As in_turn of binding.h. A handler of signals that calls what it interrupted would wait for
// itself.
template <typename Work>
auto in_turn(Core& core, bool is_long, Work&& work) {
  if (!core.opened_in.is_here()) refuse_child("the engine");
  if (core.answering.load() == std::this_thread::get_id()) {
    refuse("the engine is answering: a handler of signals cannot call it meanwhile");
  }
  return python::in_turn(core.mutex, is_long, std::forward<Work>(work), InChild::kIsNot);
}

class LocalEngine {
 public:
  explicit LocalEngine(std::unique_ptr<Core> core) : core_(std::move(core)) {}
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
  std::vector<TokenId> encode_messages(const std::string& json) const {
    const TemplateJson messages = TemplateJson::parse(json, nullptr, /*allow_exceptions=*/false);
    if (messages.is_discarded()) refuse("messages: not JSON");
    return in_turn(*core_, true, [&] {
      core_->check_open();
      return value_of(core_->model->encode_messages(messages));
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

  OwnedInProcess<Core> core_;
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

SamplingParams LocalEngine::sampling_of(const py::dict& prompt) const {
  SamplingParams sampling = core_->generation.sampling_defaults();
  const auto take = [&prompt](const char* name, auto& into) {
    if (!prompt.contains(name) || prompt[name].is_none()) return;
    into = field<std::remove_reference_t<decltype(into)>>(prompt, name);
  };
  take("temperature", sampling.temperature);
  take("top_k", sampling.top_k);
  take("top_p", sampling.top_p);
  take("min_p", sampling.min_p);
  take("repetition_penalty", sampling.repetition_penalty);
  take("presence_penalty", sampling.presence_penalty);
  take("frequency_penalty", sampling.frequency_penalty);
  take("logit_bias", sampling.logit_bias);
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
    form.schema =
        value_of(parse_ordered_json(field<std::string>(prompt, name), name, {.depth_max = 64}));
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
  wish.spec.max_tokens = field<std::int64_t>(prompt, "max_tokens");
  wish.spec.copies = field<std::int64_t>(prompt, "n");
  wish.spec.stop_tokens = field<std::vector<TokenId>>(prompt, "stop_token_ids");
  if (!field<bool>(prompt, "ignore_eos")) {
    const auto& ends = core_->generation.eos_token_ids;
    wish.spec.stop_tokens.insert(wish.spec.stop_tokens.end(), ends.begin(), ends.end());
  }
  wish.spec.logprobs = field<std::optional<std::int64_t>>(prompt, "logprobs");
  wish.spec.prompt_logprobs = field<std::optional<std::int64_t>>(prompt, "prompt_logprobs");
  wish.spec.prompt_logprobs_from = field<std::int64_t>(prompt, "logprob_start_len");
  wish.spec.adapter = field<std::string>(prompt, "adapter");
  wish.spec.namespace_digest = core_->digest;
  wish.spec.min_tokens = field<std::int64_t>(prompt, "min_tokens");
  wish.text = {.stop = field<std::vector<std::string>>(prompt, "stop"),
               .shows_stop = field<bool>(prompt, "include_stop_str_in_output"),
               .skip_special_tokens = field<bool>(prompt, "skip_special_tokens"),
               .goes_on = field<bool>(prompt, "goes_on"),
               .min_tokens = wish.spec.min_tokens};
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

py::dict to_python(const Output& output) {
  py::dict out;
  out["prompt"] = output.prompt;
  out["token_ids"] = output.tokens;
  out["text"] = output.text;
  out["logprobs"] = to_python(output.chances);
  out["prompt_logprobs"] = to_python(output.prompt_chances);
  out["finish_reason"] = finish_reason_name(output.finish);
  out["prompt_tokens"] = output.stats.prompt_tokens;
  out["cached_tokens"] = output.stats.cached_tokens;
  out["ttft_us"] = output.stats.ttft_us;
  out["total_us"] = output.stats.total_us;
  return out;
}

py::list LocalEngine::run(const py::list& prompts) {
  std::vector<Wish> wishes;
  for (const py::handle prompt : prompts) {
    wishes.push_back(wish_of(prompt.cast<py::dict>(), mix64(wishes.size())));
  }
  const std::vector<Output> outputs = in_turn(*core_, true, [&] {
    core_->check_open();
    assume_role(engine_thread);
    const LongWork work(core_->answering);
    for (Wish& wish : wishes) {
      wish.spec.constraint = value_of(open_text_form(wish.form, core_->model->grammars()));
    }
    Run run(*core_->model, *core_->engine);
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
  for (const auto& [name, directory] : adapters_of(options)) {
    check_zero_free(directory, "adapters");
    wanted.adapters.push_back({name, directory});
  }
  std::string device = "cpu";
  CudaRunnerOptions on_gpu;
  take("device", device);
  take("deterministic", on_gpu.deterministic);
  const OthersRun others_run;
  auto core = std::make_unique<Core>();
  core->backend = value_of(open_named_backend(device, on_gpu));
  wanted.backend = core->backend.get();
  core->model = value_of(ServedModel::open(wanted));
  core->engine = value_of(core->model->open_engine());
  core->generation = core->model->generation();
  core->digest = core->model->namespace_digest();
  return LocalEngine(std::move(core));
}

}  // namespace

void bind_llm(py::module_& module) {
  py::class_<LocalEngine>(module, "Engine", "A model and its cache.")
      .def(py::init(&open_engine), py::arg("model"), py::arg("options"))
      .def("encode", &LocalEngine::encode, py::arg("text"))
      .def("encode_messages", &LocalEngine::encode_messages, py::arg("json"))
      .def("run", &LocalEngine::run, py::arg("prompts"))
      .def("load_adapter", &LocalEngine::load_adapter, py::arg("name"), py::arg("directory"),
           py::arg("in_place"))
      .def("unload_adapter", &LocalEngine::unload_adapter, py::arg("name"))
      .def("stats", &LocalEngine::stats)
      .def("close", &LocalEngine::close);
}

}  // namespace stemma::python
