#include "replay/timing_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/file.h"
#include "base/json_text.h"

namespace stemma {

namespace {

// What a model asks of a machine, and what the machine gives.
struct ModelWork {
  double layer_weights = 0;  // all matrices but embedding and head
  double head_weights = 0;
  double layers = 0;
  double query_width = 0;  // heads x head_dim
  double kv_width = 0;     // kv_heads x head_dim
};

struct MachineRate {
  double flop_per_ms = 0;
  double bytes_per_ms = 0;
};

constexpr double kBytesPerValue = 2;  // bf16
constexpr MachineRate kH200 = {.flop_per_ms = 0.5 * 989e9, .bytes_per_ms = 0.75 * 4.8e9};
constexpr ModelWork kLlama8b = {6.98e9, 0.525e9, 32, 4096, 1024};
constexpr ModelWork kLlama70b = {68.45e9, 1.05e9, 80, 8192, 1024};

// A product and a sum for each weight and token; two of each for each pair, layer and query value.
constexpr TimingModel derive(const ModelWork& model, const MachineRate& one, double machines) {
  const double flop_per_ms = one.flop_per_ms * machines;
  const double bytes_per_ms = one.bytes_per_ms * machines;
  const double weights = model.layer_weights + model.head_weights;
  return {
      .step_ms = weights * kBytesPerValue / bytes_per_ms,
      .prompt_token_ms = 2 * model.layer_weights / flop_per_ms,
      .attention_pair_ms = 4 * model.query_width * model.layers / flop_per_ms,
      .decode_request_ms = 2 * weights / flop_per_ms,
      .decode_context_token_ms = 2 * model.kv_width * model.layers * kBytesPerValue / bytes_per_ms,
      .kv_token_bytes = 2 * model.kv_width * model.layers * kBytesPerValue};
}

constexpr std::array<std::pair<std::string_view, TimingModel>, 3> kPresets = {{
    {"llama-8b-h200", derive(kLlama8b, kH200, 1)},
    {"llama-70b-8xh200", derive(kLlama70b, kH200, 8)},
    {"scribe-3m-cpu", {0.23, 0.0552, 5.84e-5, 0.060, 1.07e-4, 1280}},
}};

constexpr std::array<std::pair<std::string_view, double TimingModel::*>, 6> kFields = {{
    {"step_ms", &TimingModel::step_ms},
    {"prompt_token_ms", &TimingModel::prompt_token_ms},
    {"attention_pair_ms", &TimingModel::attention_pair_ms},
    {"decode_request_ms", &TimingModel::decode_request_ms},
    {"decode_context_token_ms", &TimingModel::decode_context_token_ms},
    {"kv_token_bytes", &TimingModel::kv_token_bytes},
}};

template <typename Pairs>
std::string names_of(const Pairs& pairs) {
  std::string names;
  for (const auto& pair : pairs) {
    names += (names.empty() ? "" : ", ") + std::string(pair.first);
  }
  return names;
}

// Far above any model: bytes of a context are whole numbers of 64 bits.
constexpr double kTokenBytesMax = 1e9;

constexpr JsonLimits kLimits = {.text_bytes_max = 4096, .depth_max = 2};

Error wrong(const std::string& file, std::string_view field, std::string_view why) {
  return {ErrorCode::kCorrupt, file + ": " + printable(field) + ": " + std::string(why)};
}

Result<TimingModel> read_file_of_parts(const std::string& file) {
  PosixFiles files;
  STEMMA_ASSIGN_OR_RETURN(
      const std::string text,
      read_file(files, file, static_cast<std::int64_t>(kLimits.text_bytes_max)));
  STEMMA_ASSIGN_OR_RETURN(const nlohmann::json object, parse_json_object(text, file, kLimits));
  TimingModel model;
  for (const auto& [name, value] : object.items()) {
    const auto field = std::find_if(kFields.begin(), kFields.end(),
                                    [&](const auto& known) { return known.first == name; });
    if (field == kFields.end()) {
      return wrong(file, name, "no part of a step's time (known: " + names_of(kFields) + ")");
    }
    if (!value.is_number() || !(value.get<double>() >= 0) || !std::isfinite(value.get<double>())) {
      return wrong(file, name, "a number, not negative, is wanted");
    }
    model.*(field->second) = value.get<double>();
  }
  if (model.kv_token_bytes > kTokenBytesMax) {
    return wrong(file, "kv_token_bytes", "must be at most 1e9");
  }
  // Of a step that has something to compute.
  StepWork work;
  work.add_prompt(0, 1);
  work.add_decode(1);
  if (model.step_total_ms(work) > 0) return model;
  return Error{ErrorCode::kCorrupt,
               file + ": a step takes no time; known parts of it: " + names_of(kFields)};
}

}  // namespace

void StepWork::add_prompt(std::int64_t first, std::int64_t end) noexcept {
  const std::int64_t tokens = end - first;
  prompt_tokens += tokens;
  attention_pairs += tokens * first + tokens * (tokens + 1) / 2;
}

void StepWork::add_decode(std::int64_t context_tokens) noexcept {
  ++decode_requests;
  decode_context_tokens += context_tokens;
}

double TimingModel::step_total_ms(const StepWork& work) const noexcept {
  return step_ms + added_ms(work);
}

double TimingModel::added_ms(const StepWork& work) const noexcept {
  return prompt_token_ms * static_cast<double>(work.prompt_tokens) +
         attention_pair_ms * static_cast<double>(work.attention_pairs) +
         decode_request_ms * static_cast<double>(work.decode_requests) +
         decode_context_token_ms * static_cast<double>(work.decode_context_tokens);
}

std::string known_timing_presets() {
  return names_of(kPresets);
}

Result<TimingModel> read_timing_model(const std::string& name_or_file) {
  for (const auto& [name, model] : kPresets) {
    if (name == name_or_file) return model;
  }
  if (name_or_file.ends_with(".json")) return read_file_of_parts(name_or_file);
  return Error{ErrorCode::kNotFound, "--timing: '" + printable(name_or_file) +
                                         "' is no file that ends in .json and no preset (known: " +
                                         known_timing_presets() + ")"};
}

}  // namespace stemma
