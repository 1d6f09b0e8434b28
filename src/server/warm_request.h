// WarmRequest: a body that names the beginning of texts, a chat's messages or a prompt, of which
// pages are to be there: what /v1/cache/warm, /v1/cache/explain and files of shared prefixes take.
//
// Thread:     a pure function.
// Memory:     the request's texts.
// Cost:       O(JSON).
// Not here:   what is done with it (api_cache, preparation).
#pragma once

#include <string_view>

#include "openai/completion_request.h"

namespace stemma {

ApiResult<CompletionRequest> read_warm_request(std::string_view body, const RequestRules& rules);

}  // namespace stemma
