// FieldReader: typed reading of one object of a request. The first field that is wrong is
// remembered with its path; later reads give harmless values, so that whoever reads looks once.
//
// Thread:     one request, one thread.
// Memory:     the path.
// Cost:       a look-up a field.
// Not here:   what fields mean (completion_request).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "openai/api_error.h"
#include "template/chat_template.h"

namespace stemma {

// "messages", 2 -> "messages[2]".
std::string item_path(std::string_view path, std::size_t item);

// A whole number of 63 bits, also where it is written with a point: who has doubles alone, as many
// languages' maps of JSON do, writes 16 as 16.0. nullopt: it is none.
std::optional<std::int64_t> whole_number(const TemplateJson& value);

// A field that would change the answer and is not supported.
struct RefusedField {
  std::string_view name;
  std::string_view harmless;  // this value, as JSON writes it, asks for what is done anyway
  std::string_view why;
};

class FieldReader {
 public:
  struct Integers {
    std::int64_t min = 0;
    std::int64_t max = 0;
  };
  struct Numbers {
    double min = 0;
    double max = 0;
  };

  // `object` and `fault` must outlive this; `fault` is shared by the readers of one request.
  // `path` is that of the object, empty for the request itself. REQUIRES: object is an object.
  FieldReader(const TemplateJson& object, std::string path, std::optional<ApiError>& fault);

  // nullopt where the field is absent, null or wrong.
  std::optional<std::int64_t> integer(std::string_view name, Integers range);
  std::optional<double> number(std::string_view name, Numbers range);
  std::optional<bool> boolean(std::string_view name);
  std::optional<std::string> text(std::string_view name, std::size_t bytes_max);

  // The field, or nullptr if it is absent or null.
  const TemplateJson* find_or_null(std::string_view name) const;
  // As find_or_null; it is a fault if it is there and no object, or no array.
  const TemplateJson* object_or_null(std::string_view name);
  const TemplateJson* array_or_null(std::string_view name);

  // It is a fault if one of these is there, and not harmless.
  void refuse(std::span<const RefusedField> refused);

  // Where `name` lies in the request.
  std::string path_of(std::string_view name) const;
  // Remembers what is wrong with a field unless something was wrong before.
  void fail(std::string_view name, std::string why);

 private:
  const TemplateJson& object_;
  std::string path_;
  std::optional<ApiError>& fault_;
};

}  // namespace stemma
