// The paths of adapters that come and go.
#include <latch>
#include <utility>

#include "server/adapter_requests.h"
#include "server/api_service.h"
#include "stemma/log.h"

namespace stemma {

void ApiService::load_adapter(ExchangeId exchange, HttpRequest&& request) {
  ApiResult<AdapterRequest> read = read_load_adapter(request.body, options_.adapter_folder);
  if (const auto* const fault = std::get_if<ApiError>(&read)) return refuse(exchange, *fault);
  AdapterRequest& wanted = std::get<AdapterRequest>(read);
  const std::string& name = wanted.source.name;
  if (name == preparation_.model_name()) {
    return refuse(exchange, field_error("lora_name", "is what the model itself is called"));
  }
  if (!wanted.in_place && model_.adapters().find(name)) {
    return refuse(exchange, field_error("lora_name", "is that of another adapter"));
  }
  WorkThread::Work load = work_of(exchange, 0);
  load.run = [this, exchange, wanted = std::move(wanted)] { load_now(exchange, wanted); };
  if (!loading_->try_post(std::move(load)))
    refuse(exchange, overloaded("too many adapters wait to be read"));
}

// On the loading thread, which waits until it is placed between two steps: the engine's thread
// outlives it.
void ApiService::load_now(ExchangeId exchange, const AdapterRequest& wanted) {
  Result<Adapter> adapter = model_.read_adapter(wanted.source);
  Status outcome = adapter.ok() ? Status() : adapter.error();
  std::latch placed(1);
  const auto place = [&](Engine&) {
    outcome = model_.place_adapter(std::move(adapter).value(), wanted.in_place);
    placed.count_down();
  };
  if (adapter.ok()) {
    if (!loop_->ask(place)) {
      return http_->post(
          [this, exchange] { refuse(exchange, overloaded("too many requests wait")); });
    }
    placed.wait();
  }
  tell_adapters(exchange, "load", wanted.source.name, outcome);
}

void ApiService::unload_adapter(ExchangeId exchange, HttpRequest&& request) {
  ApiResult<AdapterRequest> read = read_unload_adapter(request.body, options_.adapter_folder);
  if (const auto* const fault = std::get_if<ApiError>(&read)) return refuse(exchange, *fault);
  ask(exchange, [this, exchange, name = std::get<AdapterRequest>(read).source.name](Engine&) {
    tell_adapters(exchange, "unload", name, model_.take_out_adapter(name));
  });
}

// From any thread: what became of it, and which there are now.
void ApiService::tell_adapters(ExchangeId exchange, std::string_view what, const std::string& name,
                               const Status& outcome) {
  STEMMA_LOG(kInfo, "server.adapter", kv("what", what), kv("name", name), kv("ok", outcome.ok()));
  if (!outcome.ok()) {
    return http_->post(
        [this, exchange, error = api_error_of(outcome.error())] { refuse(exchange, error); });
  }
  TemplateJson json;
  json["success"] = true;
  json["loaded_adapters"] = TemplateJson::array();
  for (const std::string& each : preparation_.adapter_names()) {
    json["loaded_adapters"].push_back(each);
  }
  http_->post([this, exchange, json = std::move(json)] { answer_json(exchange, json); });
}

}  // namespace stemma
