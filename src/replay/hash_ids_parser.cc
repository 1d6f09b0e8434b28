#include "replay/hash_ids_parser.h"

#include <utility>
#include <vector>

#include "base/prng.h"
#include "replay/trace_fields.h"

namespace stemma {

namespace {

struct FieldNames {
  std::string_view timestamp;
  std::string_view input_tokens;
  std::string_view output_tokens;
  std::string_view hashes;
};
constexpr FieldNames kLongNames = {"timestamp", "input_length", "output_length", "hash_ids"};
constexpr FieldNames kShortNames = {"ts", "il", "ol", "bh"};

// Makes of ids of pages ids of the prefixes that end with them.
void chain(std::vector<std::int64_t>& ids) {
  std::uint64_t before = 0;
  for (std::int64_t& id : ids) {
    before = mix64(mix64(before) + static_cast<std::uint64_t>(id));
    id = static_cast<std::int64_t>(before);
  }
}

}  // namespace

HashIdsParser::HashIdsParser(const TraceOptions& options)
    : format_(options.format),
      page_tokens_(options.page_tokens != 0 ? options.page_tokens : options.format.page_tokens) {}

Status HashIdsParser::take(std::string_view line, std::string_view where) {
  STEMMA_ASSIGN_OR_RETURN(const nlohmann::json object,
                          parse_json_object(line, where, kTraceLineLimits));
  const FieldNames& names = format_.short_names ? kShortNames : kLongNames;
  const HashForms forms = format_.short_names ? HashForms::kIntegersAndTexts : HashForms::kIntegers;
  JsonFields fields(object, where);
  TraceRequest request;
  STEMMA_ASSIGN_OR_RETURN(request.timestamp_ms,
                          read_trace_time_ms(fields.find_or_null(names.timestamp),
                                             format_.ms_per_time_unit, where, names.timestamp));
  request.input_tokens = fields.integer(names.input_tokens, kTraceTokens, std::nullopt);
  request.output_tokens = fields.integer(names.output_tokens, kTraceTokens, std::nullopt);
  STEMMA_RETURN_IF_ERROR(fields.status());
  STEMMA_ASSIGN_OR_RETURN(request.page_hashes, read_trace_hashes(fields.find_or_null(names.hashes),
                                                                 forms, where, names.hashes));
  if (!format_.ids_of_prefixes) chain(request.page_hashes);
  ready_ = std::move(request);
  return {};
}

}  // namespace stemma
