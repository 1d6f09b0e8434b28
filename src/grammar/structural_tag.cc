#include "grammar/structural_tag.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/free_text.h"
#include "grammar/json_parts.h"
#include "grammar/json_schema.h"
#include "grammar/text_form.h"

namespace stemma {
namespace {

using Json = TemplateJson;
using Part = ByteGrammar::Part;

constexpr std::int64_t kTimesMax = 1'000'000;

Error wrong(const std::string& path, std::string_view why) {
  return {ErrorCode::kInvalidArgument, fmt::format("{}: {}", path, why)};
}

std::string member_path(const std::string& path, std::string_view name) {
  return fmt::format("{}.{}", path, name);
}

std::string item_of(const std::string& path, std::size_t item) {
  return fmt::format("{}[{}]", path, item);
}

// A member, or nullptr if it is absent or null.
const Json* member_or_null(const Json& object, std::string_view name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

Result<std::string> text_in(const Json& object, const std::string& path, std::string_view name) {
  const Json* const member = member_or_null(object, name);
  if (member == nullptr || !member->is_string()) {
    return wrong(member_path(path, name), "must be a string");
  }
  return member->get<std::string>();
}

Result<bool> flag_in(const Json& object, const std::string& path, std::string_view name,
                     bool otherwise) {
  const Json* const member = member_or_null(object, name);
  if (member == nullptr) return otherwise;
  if (!member->is_boolean()) return wrong(member_path(path, name), "must be true or false");
  return member->get<bool>();
}

Result<std::int64_t> times_in(const Json& object, const std::string& path, std::string_view name,
                              std::int64_t least) {
  const Json* const member = member_or_null(object, name);
  const bool fits =
      member != nullptr && member->is_number_integer() && *member >= least && *member <= kTimesMax;
  if (fits) return member->get<std::int64_t>();
  return wrong(member_path(path, name),
               fmt::format("must be an integer from {} to {}", least, kTimesMax));
}

// Not empty.
Result<const Json*> list_in(const Json& object, const std::string& path, std::string_view name) {
  const Json* const member = member_or_null(object, name);
  if (member != nullptr && member->is_array() && !member->empty()) return member;
  return wrong(member_path(path, name), "must be a list of at least one");
}

using Texts = std::vector<std::string>;

// A list of texts, of which none is empty.
Result<Texts> texts_of(const Json& list, const std::string& path) {
  Texts texts;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!list[i].is_string() || list[i].get_ref<const std::string&>().empty()) {
      return wrong(item_of(path, i), "must be a string, and not empty");
    }
    texts.push_back(list[i].get<std::string>());
  }
  return texts;
}

// What comes nowhere in a free text: `excluded_str` is what the field was called first.
Result<Texts> excluded_in(const Json& format, const std::string& path) {
  for (const char* const name : {"excludes", "excluded_str"}) {
    const Json* const member = member_or_null(format, name);
    if (member == nullptr) continue;
    if (!member->is_array()) return wrong(member_path(path, name), "must be a list of strings");
    return texts_of(*member, member_path(path, name));
  }
  return Texts();
}

Status placed_at(const std::string& path, const Status& status) {
  if (status.ok()) return {};
  return Error{status.error().code, fmt::format("{}: {}", path, status.error().detail)};
}

class TagWriter {
 public:
  explicit TagWriter(ByteGrammar& grammar) : grammar_(grammar), json_(grammar) {}

  Result<Part> whole(const Json& tag, const std::string& path) {
    if (!tag.is_object()) return wrong(path, "must be an object");
    if (const Json* const format = member_or_null(tag, "format")) {
      return write(*format, member_path(path, "format"), {});
    }
    if (member_or_null(tag, "structures") == nullptr) {
      return wrong(member_path(path, "format"), "missing");
    }
    return triggered_tags(tag, path, {});
  }

 private:
  // Ends of the tag around a format.
  using Ends = std::span<const std::string>;
  using Writer = Result<Part> (TagWriter::*)(const Json&, const std::string&, Ends);
  struct Format {
    std::string_view name;
    Writer write;
  };
  static const std::array<Format, 15> kFormats;

  struct Tag {
    std::string begin;
    Part rest;  // the content and the end
  };

  Result<Part> write(const Json& format, const std::string& path, Ends ends) {
    if (!format.is_object()) return wrong(path, "must be an object");
    STEMMA_ASSIGN_OR_RETURN(const std::string type, text_in(format, path, "type"));
    const auto* const known = std::find_if(kFormats.begin(), kFormats.end(),
                                           [&](const Format& one) { return one.name == type; });
    if (known != kFormats.end()) return (this->*known->write)(format, path, ends);
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{}.type: \"{}\" is no format that is known", path, type)};
  }

  Result<Part> const_string(const Json& format, const std::string& path, Ends /*ends*/) {
    STEMMA_ASSIGN_OR_RETURN(const std::string text, text_in(format, path, "value"));
    return grammar_.text(text);
  }

  Result<Part> json_schema(const Json& format, const std::string& path, Ends /*ends*/) {
    const Json* const style = member_or_null(format, "style");
    if (style != nullptr && *style != "json") {
      return Error{ErrorCode::kUnsupported, path + ".style: only \"json\" is supported"};
    }
    return schema_in(format, path, "json_schema");
  }

  Result<Part> schema_in(const Json& object, const std::string& path, std::string_view name) {
    const Json* const schema = member_or_null(object, name);
    if (schema == nullptr) return wrong(member_path(path, name), "missing");
    return add_json_schema(*schema, {.strict = true, .path = member_path(path, name)}, json_);
  }

  Result<Part> regex(const Json& format, const std::string& path, Ends /*ends*/) {
    TextForm form = {.kind = TextForm::Kind::kRegex, .path = member_path(path, "pattern")};
    STEMMA_ASSIGN_OR_RETURN(form.expression, text_in(format, path, "pattern"));
    return add_text_form(form, grammar_);
  }

  Result<Part> rules(const Json& format, const std::string& path, Ends /*ends*/) {
    TextForm form = {.kind = TextForm::Kind::kEbnf, .path = member_path(path, "grammar")};
    STEMMA_ASSIGN_OR_RETURN(form.rules, text_in(format, path, "grammar"));
    return add_text_form(form, grammar_);
  }

  Result<std::vector<Part>> elements(const Json& format, const std::string& path, Ends ends) {
    STEMMA_ASSIGN_OR_RETURN(const Json* const list, list_in(format, path, "elements"));
    std::vector<Part> parts;
    for (std::size_t i = 0; i < list->size(); ++i) {
      STEMMA_ASSIGN_OR_RETURN(const Part part,
                              write((*list)[i], item_of(member_path(path, "elements"), i), ends));
      parts.push_back(part);
    }
    return parts;
  }

  Result<Part> sequence(const Json& format, const std::string& path, Ends ends) {
    STEMMA_ASSIGN_OR_RETURN(std::vector<Part> parts, elements(format, path, ends));
    return grammar_.sequence(std::move(parts));
  }

  Result<Part> any_of(const Json& format, const std::string& path, Ends ends) {
    STEMMA_ASSIGN_OR_RETURN(std::vector<Part> parts, elements(format, path, ends));
    return grammar_.either(std::move(parts));
  }

  Result<Part> content(const Json& format, const std::string& path, Ends ends) {
    const Json* const inner = member_or_null(format, "content");
    if (inner == nullptr) return wrong(member_path(path, "content"), "missing");
    return write(*inner, member_path(path, "content"), ends);
  }

  // As a rule: it comes several times.
  Result<Part> repeated_content(const Json& format, const std::string& path, Ends ends) {
    STEMMA_ASSIGN_OR_RETURN(const Part part, content(format, path, ends));
    return grammar_.rule(part);
  }

  Result<Part> optional(const Json& format, const std::string& path, Ends ends) {
    STEMMA_ASSIGN_OR_RETURN(const Part part, content(format, path, ends));
    return grammar_.optional(part);
  }

  Result<Part> plus(const Json& format, const std::string& path, Ends ends) {
    STEMMA_ASSIGN_OR_RETURN(const Part part, repeated_content(format, path, ends));
    return grammar_.repeated(part, 1, {});
  }

  Result<Part> star(const Json& format, const std::string& path, Ends ends) {
    STEMMA_ASSIGN_OR_RETURN(const Part part, repeated_content(format, path, ends));
    return grammar_.repeated(part, 0, {});
  }

  Result<Part> repeat(const Json& format, const std::string& path, Ends ends) {
    STEMMA_ASSIGN_OR_RETURN(const std::int64_t least, times_in(format, path, "min", 0));
    STEMMA_ASSIGN_OR_RETURN(const std::int64_t most, times_in(format, path, "max", -1));
    STEMMA_ASSIGN_OR_RETURN(const Part part, repeated_content(format, path, ends));
    if (most < 0) return grammar_.repeated(part, least, {});
    if (most < least) return wrong(member_path(path, "max"), "is below min");
    return grammar_.repeated(part, least, most);
  }

  Result<Part> any_text(const Json& format, const std::string& path, Ends ends) {
    return free_text(format, path, ends, grammar_.rule(), {});
  }

  // Defines `whole`.
  Result<Part> free_text(const Json& format, const std::string& path, Ends ends, Part whole,
                         std::vector<FreeText::Trigger> triggers) {
    FreeText text = {.triggers = std::move(triggers), .ends = {ends.begin(), ends.end()}};
    STEMMA_ASSIGN_OR_RETURN(text.excluded, excluded_in(format, path));
    STEMMA_RETURN_IF_ERROR(placed_at(path, define_free_text(whole, text, grammar_)));
    return whole;
  }

  // An end, or several of which one comes. Those that are empty end no free text.
  static Result<Texts> ends_in(const Json& tag, const std::string& path) {
    const Json* const end = member_or_null(tag, "end");
    if (end != nullptr && end->is_string()) return Texts{end->get<std::string>()};
    if (end != nullptr && end->is_array() && !end->empty()) {
      return texts_of(*end, member_path(path, "end"));
    }
    return wrong(member_path(path, "end"), "must be a string, or a list of strings");
  }

  Result<Tag> read_tag(const Json& tag, const std::string& path) {
    if (!tag.is_object()) return wrong(path, "must be an object");
    STEMMA_ASSIGN_OR_RETURN(std::string begin, text_in(tag, path, "begin"));
    STEMMA_ASSIGN_OR_RETURN(const Texts ends, ends_in(tag, path));
    const bool never_ends = ends.front().empty();
    const bool is_of_old =
        member_or_null(tag, "content") == nullptr && member_or_null(tag, "schema") != nullptr;
    STEMMA_ASSIGN_OR_RETURN(const Part inner,
                            is_of_old ? schema_in(tag, path, "schema")
                                      : content(tag, path, never_ends ? Ends() : Ends(ends)));
    const std::vector<std::string_view> all(ends.begin(), ends.end());
    return Tag{std::move(begin), grammar_.sequence({inner, grammar_.one_text_of(all)})};
  }

  Result<Part> tag(const Json& format, const std::string& path, Ends /*ends*/) {
    STEMMA_ASSIGN_OR_RETURN(const Tag read, read_tag(format, path));
    return grammar_.sequence({grammar_.text(read.begin), read.rest});
  }

  // Rests are rules: they come in several places.
  Result<std::vector<Tag>> tags_in(const Json& format, const std::string& path,
                                   std::string_view name) {
    STEMMA_ASSIGN_OR_RETURN(const Json* const list, list_in(format, path, name));
    std::vector<Tag> tags;
    for (std::size_t i = 0; i < list->size(); ++i) {
      STEMMA_ASSIGN_OR_RETURN(Tag read, read_tag((*list)[i], item_of(member_path(path, name), i)));
      read.rest = grammar_.rule(read.rest);
      tags.push_back(std::move(read));
    }
    return tags;
  }

  Part one_of(std::span<const Tag> tags) {
    std::vector<ByteGrammar::Begun> ways;
    ways.reserve(tags.size());
    for (const Tag& tag : tags) ways.push_back({tag.begin, tag.rest});
    return grammar_.one_begun_of(std::move(ways));
  }

  // Each trigger with the tags that it begins.
  Result<std::vector<FreeText::Trigger>> triggered(std::span<const Tag> tags, const Texts& triggers,
                                                   const std::string& tags_path, Part behind) {
    std::vector<std::vector<ByteGrammar::Begun>> ways(triggers.size());
    for (std::size_t i = 0; i < tags.size(); ++i) {
      const std::string_view begin = tags[i].begin;
      const auto begins = [&](const std::string& trigger) { return begin.starts_with(trigger); };
      if (std::count_if(triggers.begin(), triggers.end(), begins) != 1) {
        return wrong(item_of(tags_path, i) + ".begin", "must begin with exactly one trigger");
      }
      const auto at = std::find_if(triggers.begin(), triggers.end(), begins) - triggers.begin();
      const auto number = static_cast<std::size_t>(at);
      ways[number].push_back(
          {begin.substr(triggers[number].size()), grammar_.sequence({tags[i].rest, behind})});
    }
    std::vector<FreeText::Trigger> read;
    for (std::size_t i = 0; i < triggers.size(); ++i) {
      read.push_back({triggers[i], ways[i].empty() ? grammar_.nothing("a trigger of no tag")
                                                   : grammar_.one_begun_of(std::move(ways[i]))});
    }
    return read;
  }

  Result<Part> triggered_tags(const Json& format, const std::string& path, Ends ends) {
    const char* const name = member_or_null(format, "tags") != nullptr ? "tags" : "structures";
    STEMMA_ASSIGN_OR_RETURN(const Json* const list, list_in(format, path, "triggers"));
    STEMMA_ASSIGN_OR_RETURN(const Texts triggers, texts_of(*list, member_path(path, "triggers")));
    // Before each tag is compared with all of them.
    STEMMA_RETURN_IF_ERROR(placed_at(path, check_marks({.excluded = triggers})));
    STEMMA_ASSIGN_OR_RETURN(const std::vector<Tag> tags, tags_in(format, path, name));
    STEMMA_ASSIGN_OR_RETURN(const bool some, flag_in(format, path, "at_least_one", false));
    STEMMA_ASSIGN_OR_RETURN(const bool one, flag_in(format, path, "stop_after_first", false));
    const Part whole = grammar_.rule();
    const Part behind = one ? grammar_.sequence({}) : whole;
    STEMMA_ASSIGN_OR_RETURN(auto read, triggered(tags, triggers, member_path(path, name), behind));
    STEMMA_ASSIGN_OR_RETURN(const Part text, free_text(format, path, ends, whole, std::move(read)));
    return some ? grammar_.sequence({one_of(tags), behind}) : text;
  }

  Result<Part> tags_with_separator(const Json& format, const std::string& path, Ends /*ends*/) {
    STEMMA_ASSIGN_OR_RETURN(const std::vector<Tag> tags, tags_in(format, path, "tags"));
    STEMMA_ASSIGN_OR_RETURN(const std::string separator, text_in(format, path, "separator"));
    STEMMA_ASSIGN_OR_RETURN(const bool some, flag_in(format, path, "at_least_one", false));
    STEMMA_ASSIGN_OR_RETURN(const bool one, flag_in(format, path, "stop_after_first", false));
    const Part tag = one_of(tags);
    const Part others = grammar_.repeated(grammar_.sequence({grammar_.text(separator), tag}), 0,
                                          one ? std::optional(0) : std::nullopt);
    const Part all = grammar_.sequence({tag, others});
    return some ? all : grammar_.optional(all);
  }

  // Pairs of a mark and what comes behind it.
  Result<Part> dispatch(const Json& format, const std::string& path, Ends ends) {
    STEMMA_ASSIGN_OR_RETURN(const Json* const pairs, list_in(format, path, "rules"));
    STEMMA_ASSIGN_OR_RETURN(const bool again, flag_in(format, path, "loop", true));
    const Part whole = grammar_.rule();
    const Part behind = again ? whole : grammar_.sequence({});
    std::vector<FreeText::Trigger> triggers;
    for (std::size_t i = 0; i < pairs->size(); ++i) {
      const Json& pair = (*pairs)[i];
      const std::string at = item_of(member_path(path, "rules"), i);
      const bool is_pair = pair.is_array() && pair.size() == 2 && pair[0].is_string() &&
                           !pair[0].get_ref<const std::string&>().empty();
      if (!is_pair) return wrong(at, "must be a string and a format");
      STEMMA_ASSIGN_OR_RETURN(const Part inner, write(pair[1], item_of(at, 1), ends));
      triggers.push_back({pair[0].get<std::string>(), grammar_.sequence({inner, behind})});
    }
    return free_text(format, path, ends, whole, std::move(triggers));
  }

  ByteGrammar& grammar_;
  const JsonParts json_;
};

constexpr std::array<TagWriter::Format, 15> TagWriter::kFormats = {{
    {"const_string", &TagWriter::const_string},
    {"json_schema", &TagWriter::json_schema},
    {"regex", &TagWriter::regex},
    {"grammar", &TagWriter::rules},
    {"any_text", &TagWriter::any_text},
    {"sequence", &TagWriter::sequence},
    {"or", &TagWriter::any_of},
    {"optional", &TagWriter::optional},
    {"plus", &TagWriter::plus},
    {"star", &TagWriter::star},
    {"repeat", &TagWriter::repeat},
    {"tag", &TagWriter::tag},
    {"triggered_tags", &TagWriter::triggered_tags},
    {"tags_with_separator", &TagWriter::tags_with_separator},
    {"dispatch", &TagWriter::dispatch},
}};

}  // namespace

Result<Part> add_structural_tag(const TemplateJson& tag, const std::string& path,
                                ByteGrammar& grammar) {
  return TagWriter(grammar).whole(tag, path);
}

}  // namespace stemma
