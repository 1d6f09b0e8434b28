#include "grammar/number_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/number_multiples.h"
#include "grammar/number_range.h"

namespace stemma {
namespace {

using Part = ByteGrammar::Part;

constexpr std::int64_t kTen = 10;

Error wrong(const std::string& path, std::string_view why) {
  return {ErrorCode::kInvalidArgument, fmt::format("{}: {}", path, why)};
}

Part nothing(const std::string& path, std::string_view why, const JsonParts& json) {
  return json.grammar.nothing(fmt::format("{}: {}", path, why));
}

constexpr std::int64_t kWholeMax = JsonParts::kNumberMax / JsonParts::kNumberUnit;

// Whether multiples with at most `places` digits behind the point leave a schema room for more.
// There is a rule for about each remainder and digit.
bool makes_few_rules(const DecimalStep& step, int places) {
  constexpr std::int64_t kRulesMax = 8000;
  const std::int64_t whole_max = places == 0 ? JsonParts::kIntegerMax : kWholeMax;
  const auto digits = std::ssize(std::to_string(whole_max));
  std::int64_t rules = 0;
  for (int behind = 0; behind <= std::min(places, step.places); ++behind) {
    rules += bare_step(step.with_places(behind)) * (digits + behind);
  }
  return rules <= kRulesMax;
}

// What numbers are to be multiples of; nullopt: the schema does not say, or that is passed over.
Result<std::optional<DecimalStep>> step_of(const TemplateJson& schema, bool strict, int places,
                                           const std::string& path) {
  const auto found = schema.find("multipleOf");
  if (found == schema.end()) return std::optional<DecimalStep>();
  const std::string at = path + ".multipleOf";
  if (!found->is_number() || !(found->get<double>() > 0)) {
    return wrong(at, "must be a number above 0");
  }
  const std::optional<DecimalStep> step = decimal_step(found->get<double>());
  if (step.has_value() && makes_few_rules(*step, places)) return step;
  if (!strict) return std::optional<DecimalStep>();
  return Error{ErrorCode::kUnsupported,
               at + ": not supported with so many digits where a schema is strict"};
}

// Multiples of `step` with at most `places` digits behind the point.
Result<Part> multiples_of(const TemplateJson& schema, const DecimalStep& step, int places,
                          const std::string& path, const JsonParts& json) {
  std::vector<Part> parts;
  std::int64_t limit = places == 0 ? JsonParts::kIntegerMax : kWholeMax;
  for (int behind = 0; behind <= std::min(places, step.places); ++behind) {
    if (behind > 0) limit *= kTen;
    const Result<NumberRange> range = read_number_range(schema, behind, limit);
    if (!range.ok()) return wrong(path, range.error().detail);
    if (range->least > range->most) continue;
    const std::optional<Part> part = multiples(json.grammar, {.least = range->least,
                                                              .most = range->most,
                                                              .step = step.with_places(behind),
                                                              .places = behind});
    if (part.has_value()) parts.push_back(*part);
  }
  if (parts.empty()) return nothing(path, "no multiple is in this range", json);
  return json.grammar.either(std::move(parts));
}

}  // namespace

Result<Part> integer_of_schema(const TemplateJson& schema, bool strict, const std::string& path,
                               const JsonParts& json) {
  const Result<std::optional<DecimalStep>> step = step_of(schema, strict, 0, path);
  if (!step.ok()) return step.error();
  if (step->has_value()) return multiples_of(schema, **step, 0, path, json);
  const Result<NumberRange> range = read_number_range(schema, 0, JsonParts::kIntegerMax);
  if (!range.ok()) return wrong(path, range.error().detail);
  if (range->least > range->most) {
    return nothing(path, "no integer of at most 18 digits is in this range", json);
  }
  return json.integer(range->least, range->most);
}

Result<Part> number_of_schema(const TemplateJson& schema, bool strict, const std::string& path,
                              const JsonParts& json) {
  constexpr int kPlaces = DecimalStep::kPlacesMax;
  const Result<std::optional<DecimalStep>> step = step_of(schema, strict, kPlaces, path);
  if (!step.ok()) return step.error();
  if (step->has_value()) {
    return multiples_of(schema, **step, kPlaces, path, json);
  }
  const Result<NumberRange> range =
      read_number_range(schema, JsonParts::kNumberPlaces, JsonParts::kNumberMax);
  if (!range.ok()) return wrong(path, range.error().detail);
  if (range->is_free) return json.number;
  if (range->least > range->most) {
    return nothing(path, "no number with six digits of a fraction is in this range", json);
  }
  return json.number_between(range->least, range->most);
}

}  // namespace stemma
