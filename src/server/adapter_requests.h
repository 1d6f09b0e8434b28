// What clients ask of adapters while the server runs: one is loaded from a folder that the operator
// has named, or taken out. The fields are those of vLLM's /v1/load_lora_adapter.
//
// Thread:     pure functions.
// Memory:     a name and a path.
// Cost:       one small parse; a look at the file system.
// Not here:   reading and placing it (ServedModel), who may ask (ApiService).
#pragma once

#include <string>
#include <string_view>

#include "model/adapter.h"
#include "openai/api_error.h"

namespace stemma {

struct AdapterRequest {
  AdapterSource source;   // of no directory: it is to be taken out
  bool in_place = false;  // in the place of another one of its name
};

// {"lora_name": ..., "lora_path": ..., "load_inplace": false}: the path is one below `folder`, as
// it is written there or absolute. Links are followed: what they lead to lies below it too. A fault
// where `folder` is empty, as of the other.
ApiResult<AdapterRequest> read_load_adapter(std::string_view body, const std::string& folder);
// {"lora_name": ...}
ApiResult<AdapterRequest> read_unload_adapter(std::string_view body, const std::string& folder);

}  // namespace stemma
