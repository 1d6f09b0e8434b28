#include "server/adapter_requests.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "openai/completion_request.h"
#include "openai/field_reader.h"

namespace stemma {
namespace {

constexpr std::size_t kBodyBytesMax = 1 << 16;
constexpr std::size_t kNameBytesMax = 256;
constexpr std::size_t kPathBytesMax = 4096;

// With links followed; nullopt: there is no such directory below `folder`.
std::optional<std::string> directory_below(const std::string& folder, const std::string& path) {
  std::error_code error;
  const auto whole = std::filesystem::canonical(std::filesystem::path(folder) / path, error);
  if (error) return std::nullopt;
  const auto root = std::filesystem::canonical(folder, error);
  if (error || !std::filesystem::is_directory(whole, error)) return std::nullopt;
  const auto parted = std::mismatch(root.begin(), root.end(), whole.begin(), whole.end());
  if (parted.first != root.end()) return std::nullopt;
  return whole.string();
}

// The name, and of one that is to be loaded the directory.
ApiResult<AdapterRequest> read(std::string_view body, const std::string& folder, bool loads) {
  if (folder.empty()) {
    return forbidden("adapters change in a server that was started with --adapters-from");
  }
  ApiResult<TemplateJson> parsed = read_json_body(body, kBodyBytesMax);
  if (auto* const fault = std::get_if<ApiError>(&parsed)) return std::move(*fault);
  std::optional<ApiError> fault;
  FieldReader fields(std::get<TemplateJson>(parsed), "", fault);
  AdapterRequest request;
  request.source.name = fields.text("lora_name", kNameBytesMax).value_or("");
  if (request.source.name.empty()) fields.fail("lora_name", "missing");
  if (loads) {
    const std::string path = fields.text("lora_path", kPathBytesMax).value_or("");
    const auto directory = directory_below(folder, path);
    if (path.empty()) fields.fail("lora_path", "missing");
    if (!directory.has_value()) {
      fields.fail("lora_path", "must be a directory below the one of --adapters-from");
    }
    request.source.directory = directory.value_or("");
    request.in_place = fields.boolean("load_inplace").value_or(false);
  }
  if (fault.has_value()) return *std::move(fault);
  return request;
}

}  // namespace

ApiResult<AdapterRequest> read_load_adapter(std::string_view body, const std::string& folder) {
  return read(body, folder, /*loads=*/true);
}

ApiResult<AdapterRequest> read_unload_adapter(std::string_view body, const std::string& folder) {
  return read(body, folder, /*loads=*/false);
}

}  // namespace stemma
