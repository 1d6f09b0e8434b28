#include "server/api_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "anthropic/message_request.h"
#include "base/machine_entropy.h"
#include "base/wall_clock.h"
#include "openai/response_request.h"
#include "server/receipt.h"
#include "server/token_requests.h"
#include "stemma/log.h"
#include "stemma/version.h"

namespace stemma {
namespace {

// A client's own name for its request, if it is one that can be shown and logged.
std::string request_id_of(const HttpRequest& request) {
  const std::string* const given = request.header_or_null("x-request-id");
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  if (given == nullptr || given->empty() || given->size() > 128) return "";
  return std::all_of(given->begin(), given->end(), is_plain) ? *given : "";
}

// Bodies up to so long have a work thread to themselves: a text takes up to a second a MB.
constexpr std::int64_t kShortBodyBytes = 64 << 10;
constexpr std::int64_t kLongBodyBytes = 1 << 20;

// Adapters that wait to be read.
constexpr std::int64_t kAdaptersLoadingMax = 16;

// What is asked again and again by who only looks: a log would be full of it.
bool is_polled(std::string_view path) {
  return path == "/health" || path == "/ping" || path == "/metrics" || path == "/debug/kv" ||
         path == "/v1/cache/stats" || path == "/v1/cache/tree";
}

// Seconds since 1970, as RFC 3339 writes them.
std::string utc_text(std::int64_t time_s) {
  const std::chrono::sys_seconds time{std::chrono::seconds(time_s)};
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(time - day);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                     clock.hours().count(), clock.minutes().count(), clock.seconds().count());
}

template <CompletionKind kKind>
ApiResult<CompletionRequest> read_completion_of(std::string_view body, const RequestRules& rules) {
  return read_completion_request(kKind, body, rules);
}

ApiResult<CompletionRequest> read_message(std::string_view body, const RequestRules& rules) {
  return read_message_request(body, rules);
}

// In which words what is wrong is told there.
AnswerShape shape_at(std::string_view path) {
  return path.starts_with("/v1/messages") ? AnswerShape::kMessage : AnswerShape::kCompletion;
}

// Whether a body is known to be so short that it may be read although it is of no use, as some
// clients send one.
bool is_small(const HttpRequest& head) {
  constexpr std::size_t kDigitsMax = 4;
  const std::string* const length = head.header_or_null("content-length");
  return length != nullptr && length->size() <= kDigitsMax;
}

// A route that ends with a slash is one for all that lies behind it.
bool matches(std::string_view route, std::string_view path) {
  return route == path || (route.size() > 1 && route.ends_with('/') && path.starts_with(route));
}

WorkThread::Limits preparing_limits(const ApiOptions& options) {
  return {.works = options.preparing_max, .bytes = options.preparing_bytes_max};
}

}  // namespace

ApiService::ApiService(ServedModel& model, const Engine& engine, ApiOptions options)
    : model_(model),
      engine_(engine),
      options_(std::move(options)),
      preparation_(model, options_.model_name, options_.answers_max),
      ids_(machine_entropy()),
      started_s_(wall_clock_seconds()),
      forming_(std::make_unique<WorkThread>(preparing_limits(options_))),
      loading_(std::make_unique<WorkThread>(
          WorkThread::Limits{.works = kAdaptersLoadingMax, .bytes = kAdaptersLoadingMax})) {
  for (auto& each : work_) {
    each = std::make_unique<WorkThread>(preparing_limits(options_));
  }
  for (auto& each : writing_) {
    each = std::make_unique<WorkThread>(WorkThread::Limits{.works = options_.answers_max});
  }
}

ApiService::~ApiService() = default;

void ApiService::attach(HttpServer& http, ServingLoop& loop, EventPublisher* events_or_null) {
  http_ = &http;
  events_or_null_ = events_or_null;
  loop_ = &loop;
}

std::span<const ApiService::Route> ApiService::routes() {
  static constexpr std::array kRoutes = {
      Route{"GET", "/", Access::kEverybody, &ApiService::page},
      Route{"GET", "/page/", Access::kEverybody, &ApiService::page},
      Route{"GET", "/health", Access::kEverybody, &ApiService::health},
      Route{"GET", "/ping", Access::kEverybody, &ApiService::health},
      Route{"GET", "/version", Access::kEverybody, &ApiService::version},
      Route{"GET", "/metrics", Access::kAdmin, &ApiService::metrics},
      Route{"GET", "/v1/models", Access::kKey, &ApiService::models},
      Route{"GET", "/v1/models/", Access::kKey, &ApiService::model},
      Route{"POST", "/v1/load_lora_adapter", Access::kAdmin, &ApiService::load_adapter},
      Route{"POST", "/v1/unload_lora_adapter", Access::kAdmin, &ApiService::unload_adapter},
      Route{"POST", "/load_lora_adapter", Access::kAdmin, &ApiService::load_adapter},
      Route{"POST", "/unload_lora_adapter", Access::kAdmin, &ApiService::unload_adapter},
      Route{"POST", "/v1/chat/completions", Access::kKey, &ApiService::chat},
      Route{"POST", "/v1/completions", Access::kKey, &ApiService::completion},
      Route{"POST", "/v1/responses", Access::kKey, &ApiService::response},
      Route{"POST", "/v1/messages", Access::kKey, &ApiService::message},
      Route{"POST", "/v1/messages/count_tokens", Access::kKey, &ApiService::count_tokens},
      Route{"POST", "/v1/embeddings", Access::kKey, &ApiService::embeddings},
      Route{"POST", "/tokenize", Access::kKey, &ApiService::tokenize},
      Route{"POST", "/detokenize", Access::kKey, &ApiService::detokenize},
      Route{"POST", "/v1/cache/warm", Access::kKey, &ApiService::warm},
      Route{"POST", "/v1/cache/explain", Access::kKey, &ApiService::explain},
      Route{"GET", "/v1/cache/stats", Access::kAdmin, &ApiService::stats},
      Route{"GET", "/v1/cache/tree", Access::kAdmin, &ApiService::tree},
      Route{"GET", "/v1/cache/tree/", Access::kAdmin, &ApiService::tree_node},
      Route{"GET", "/debug/kv", Access::kAdmin, &ApiService::debug_kv},
      Route{"DELETE", "/v1/cache", Access::kKey, &ApiService::purge},
      Route{"POST", "/flush_cache", Access::kAdmin, &ApiService::flush},
      Route{"POST", "/reset_prefix_cache", Access::kAdmin, &ApiService::flush}};
  return kRoutes;
}

ApiService::Admission ApiService::admit(const HttpRequest& head) const {
  const Route* by_path = nullptr;
  for (const Route& route : routes()) {
    if (!matches(route.path, head.path)) continue;
    by_path = &route;
    const bool is_head = head.method == "HEAD" && route.method == "GET";
    if (route.method == head.method || is_head) return admit_to(route, head);
  }
  if (by_path == nullptr) return Refused{not_found("there is nothing at this path")};
  ApiError error = field_error("", fmt::format("only {} is understood here", by_path->method));
  error.status = 405;
  return Refused{std::move(error), by_path->method};
}

ApiService::Admission ApiService::admit_to(const Route& route, const HttpRequest& head) const {
  if (route.access == Access::kEverybody) return Admitted{&route, {}};
  if (options_.keys.open_to_all()) {
    if (auto fault = options_.origins.fault(head)) return Refused{forbidden(*std::move(fault))};
  }
  std::optional<Caller> caller = options_.keys.caller_of(head.header_or_null("authorization"),
                                                         head.header_or_null("x-api-key"));
  if (!caller.has_value()) {
    return Refused{not_allowed("an API key is wanted: Authorization: Bearer KEY")};
  }
  if (route.access == Access::kAdmin && !caller->admin) {
    return Refused{forbidden("only an admin's key opens this")};
  }
  return Admitted{&route, *std::move(caller)};
}

ApiService::Exchange ApiService::exchange_of(const HttpRequest& head) {
  Exchange exchange;
  exchange.path = head.path;
  exchange.begun_us = clock_.now_us();
  exchange.body_bytes = std::ssize(head.body);
  exchange.request_id = request_id_of(head);
  if (exchange.request_id.empty()) exchange.request_id = fresh_id("req-");
  if (const auto* const origin = options_.origins.granted_or_null(head)) exchange.origin = *origin;
  return exchange;
}

HttpResponse ApiService::response_to(const Refused& refused, const Exchange& exchange) {
  HttpResponse response =
      error_response(refused.error, exchange.request_id, shape_at(exchange.path));
  if (!refused.allowed_method.empty()) {
    response.headers.emplace_back("Allow", std::string(refused.allowed_method));
  }
  return response;
}

HttpResponse ApiService::granted(const Exchange& exchange, HttpResponse response) {
  if (!exchange.origin.empty()) grant(exchange.origin, response);
  return response;
}

std::optional<HttpResponse> ApiService::refusal(const HttpRequest& head) {
  Admission admission = admit(head);
  const auto* const admitted = std::get_if<Admitted>(&admission);
  if (admitted != nullptr && admitted->route->access == Access::kEverybody && !is_small(head)) {
    admission = Refused{too_large("a body is of no use here")};
  }
  const auto* const refused = std::get_if<Refused>(&admission);
  if (refused == nullptr) return std::nullopt;
  const Exchange exchange = exchange_of(head);
  const bool asks_only = !exchange.origin.empty() && is_preflight(head);
  HttpResponse response = asks_only ? preflight_answer(head) : response_to(*refused, exchange);
  note_end(exchange, response.status);
  return granted(exchange, std::move(response));
}

HttpResponse ApiService::error(const HttpRequest& head, int status, std::string_view why) {
  const Exchange exchange = exchange_of(head);
  ApiError fault =
      status < 500 ? field_error("", std::string(why)) : server_error(std::string(why));
  fault.status = status;
  return granted(exchange, error_response(fault, exchange.request_id, shape_at(exchange.path)));
}

void ApiService::begin(ExchangeId exchange, HttpRequest&& request) {
  Exchange& entry = exchanges_[exchange] = exchange_of(request);
  if (!entry.origin.empty() && is_preflight(request)) {
    return answer(exchange, preflight_answer(request));
  }
  Admission admission = admit(request);
  if (const auto* const refused = std::get_if<Refused>(&admission)) {
    return answer(exchange, response_to(*refused, entry));
  }
  Admitted& admitted = std::get<Admitted>(admission);
  entry.caller = std::move(admitted.caller);
  (this->*admitted.route->verb)(exchange, std::move(request));
}

void ApiService::gone(ExchangeId exchange, GoneBy by) {
  const auto found = exchanges_.find(exchange);
  if (found == exchanges_.end()) return;
  if (found->second.answer_or_null != nullptr) loop_->cancel(exchange);
  for (const auto& each : work_) each->withdraw(exchange);
  forming_->withdraw(exchange);
  loading_->withdraw(exchange);
  const bool waits = std::any_of(writing_.begin(), writing_.end(),
                                 [&](const auto& each) { return each->withdraw(exchange); });
  if (found->second.writing && !waits) {
    found->second.gone_by = by;
    leaving_.insert(exchanges_.extract(found));
    return;
  }
  if (found->second.writing) --writings_;
  note_gone(found->second, by);
  exchanges_.erase(found);
}

void ApiService::answer(ExchangeId exchange, HttpResponse response) {
  const auto found = exchanges_.find(exchange);
  if (found == exchanges_.end()) return;
  note_end(found->second, response.status);
  response = granted(found->second, std::move(response));
  exchanges_.erase(found);
  http_->respond(exchange, std::move(response));
}

void ApiService::answer_json(ExchangeId exchange, const TemplateJson& json) {
  answer_text(exchange, json_text(json));
}

void ApiService::answer_text(ExchangeId exchange, std::string&& json) {
  const auto found = exchanges_.find(exchange);
  if (found == exchanges_.end()) return;
  const Exchange& entry = found->second;
  answer(exchange, {.headers = request_id_headers(entry.request_id, shape_at(entry.path)),
                    .body = std::move(json)});
}

void ApiService::refuse(ExchangeId exchange, const ApiError& error) {
  const auto found = exchanges_.find(exchange);
  if (found == exchanges_.end()) return;
  const Exchange& entry = found->second;
  answer(exchange, error_response(error, entry.request_id, shape_at(entry.path)));
}

// Of which only what it is to run is open.
WorkThread::Work ApiService::work_of(ExchangeId exchange, std::int64_t bytes) {
  WorkThread::Work work = {.whose = exchange, .bytes = bytes, .run = {}};
  work.failed = [this, exchange](std::string_view) {
    http_->post([this, exchange] {
      refuse(exchange, server_error("the request cannot be read by this server"));
    });
  };
  return work;
}

WorkThread& ApiService::work_thread_of(std::int64_t body_bytes) {
  return *work_[body_bytes <= kShortBodyBytes ? 0 : body_bytes <= kLongBodyBytes ? 1 : 2];
}

void ApiService::work(ExchangeId exchange, std::function<Finish()> work) {
  const auto found = exchanges_.find(exchange);
  if (found == exchanges_.end()) return;
  work_on(work_thread_of(found->second.body_bytes), exchange, std::move(work));
}

void ApiService::work_on(WorkThread& thread, ExchangeId exchange, std::function<Finish()> work) {
  const auto found = exchanges_.find(exchange);
  if (found == exchanges_.end()) return;
  WorkThread::Work posted = work_of(exchange, found->second.body_bytes);
  posted.run = [this, exchange, work = std::move(work)] {
    http_->post([this, exchange, finish = work()] {
      if (exchanges_.contains(exchange)) finish();
    });
  };
  if (thread.try_post(std::move(posted))) return;
  refuse(exchange, overloaded("too many requests wait to be read"));
}

// What a form costs to compile is known when it is compiled, and a client may send many.
void ApiService::prepare(ExchangeId exchange, ReadRequest read, UsePrepared use) {
  const Exchange& entry = exchanges_.at(exchange);
  const bool is_short = entry.body_bytes <= kShortBodyBytes;
  work(exchange,
       [this, exchange, is_short, read = std::move(read), use = std::move(use),
        caller = entry.caller]() -> Finish {
         ApiResult<CompletionRequest> request = read();
         if (!is_short) return finish_of(exchange, preparation_.prepare(request, caller), use);
         auto prepared = preparation_.prepare_at_once(request, caller);
         if (prepared.has_value()) return finish_of(exchange, *std::move(prepared), use);
         return [this, exchange, use, request = std::move(request)]() mutable {
           prepare_form(exchange, std::move(request), std::move(use));
         };
       });
}

void ApiService::prepare_form(ExchangeId exchange, ApiResult<CompletionRequest>&& request,
                              UsePrepared use) {
  work_on(*forming_, exchange,
          [this, exchange, request = std::move(request), use = std::move(use),
           caller = exchanges_.at(exchange).caller] {
            return finish_of(exchange, preparation_.prepare(request, caller), use);
          });
}

ApiService::Finish ApiService::finish_of(ExchangeId exchange, ApiResult<PreparedAnswer>&& prepared,
                                         const UsePrepared& use) {
  if (const auto* const fault = std::get_if<ApiError>(&prepared)) {
    return [this, exchange, fault = *fault] { refuse(exchange, fault); };
  }
  return use(std::get<PreparedAnswer>(std::move(prepared)));
}

void ApiService::ask(ExchangeId exchange, ServingLoop::Question question) {
  if (!loop_->ask(std::move(question))) refuse(exchange, overloaded("too many requests wait"));
}

void ApiService::health(ExchangeId exchange, HttpRequest&&) {
  const std::string_view fault = loop_->fault();
  TemplateJson json;
  json["status"] = fault.empty() ? "ok" : fault;
  json["version"] = std::string(kVersion);
  json["answers_in_flight"] = open_answers();
  HttpResponse response = {.status = fault.empty() ? 200 : 503, .body = json.dump()};
  answer(exchange, std::move(response));
}

void ApiService::version(ExchangeId exchange, HttpRequest&&) {
  answer_json(exchange, {{"version", std::string(kVersion)}});
}

// An adapter is listed as a model that has the model as its parent. Clients of OpenAI's look for
// `object` and `created`, those of Anthropic's for `type`, `display_name` and `created_at`.
TemplateJson ApiService::model_json(std::string_view name) const {
  const bool is_adapter = name != preparation_.model_name();
  TemplateJson model;
  model["id"] = name;
  model["object"] = "model";
  model["type"] = "model";
  model["display_name"] = name;
  const auto started_s = static_cast<std::int64_t>(started_s_);
  model["created"] = started_s;
  model["created_at"] = utc_text(started_s);
  model["owned_by"] = "stemma";
  model["max_model_len"] = preparation_.context_tokens();
  model["root"] = name;
  model["parent"] = is_adapter ? TemplateJson(preparation_.model_name()) : TemplateJson();
  model["weights"] = preparation_.weights_json();
  return model;
}

void ApiService::model(ExchangeId exchange, HttpRequest&& request) {
  const std::string_view name = std::string_view(request.path).substr(sizeof("/v1/models/") - 1);
  if (const auto fault = preparation_.check_model(name)) return refuse(exchange, *fault);
  answer_json(exchange, model_json(name.empty() ? preparation_.model_name() : name));
}

void ApiService::models(ExchangeId exchange, HttpRequest&&) {
  TemplateJson json;
  json["object"] = "list";
  json["data"] = TemplateJson::array({model_json(preparation_.model_name())});
  for (const std::string& adapter : preparation_.adapter_names()) {
    json["data"].push_back(model_json(adapter));
  }
  json["first_id"] = json["data"].front()["id"];
  json["last_id"] = json["data"].back()["id"];
  json["has_more"] = false;
  answer_json(exchange, json);
}

void ApiService::embeddings(ExchangeId exchange, HttpRequest&&) {
  ApiError error = field_error("",
                               "embeddings are not supported: this server's model answers in "
                               "text (/v1/chat/completions, /v1/completions)");
  error.code = "unsupported_endpoint";
  refuse(exchange, error);
}

void ApiService::chat(ExchangeId exchange, HttpRequest&& request) {
  generate(exchange, &read_completion_of<CompletionKind::kChat>, std::move(request));
}

void ApiService::completion(ExchangeId exchange, HttpRequest&& request) {
  generate(exchange, &read_completion_of<CompletionKind::kText>, std::move(request));
}

void ApiService::response(ExchangeId exchange, HttpRequest&& request) {
  generate(exchange, &read_response_request, std::move(request));
}

void ApiService::message(ExchangeId exchange, HttpRequest&& request) {
  generate(exchange, &read_message, std::move(request));
}

void ApiService::count_tokens(ExchangeId exchange, HttpRequest&& request) {
  answer_worked_out(exchange, std::move(request.body), &count_tokens_body);
}

void ApiService::tokenize(ExchangeId exchange, HttpRequest&& request) {
  answer_worked_out(exchange, std::move(request.body), &tokenize_body);
}

void ApiService::detokenize(ExchangeId exchange, HttpRequest&& request) {
  answer_worked_out(exchange, std::move(request.body), &detokenize_body);
}

void ApiService::answer_worked_out(ExchangeId exchange, std::string&& body, BodyReader reader) {
  auto make = [this, body = std::move(body), reader]() -> ApiResult<std::string> {
    ApiResult<TemplateJson> made = reader(body, preparation_);
    if (auto* const fault = std::get_if<ApiError>(&made)) return std::move(*fault);
    return json_text(std::get<TemplateJson>(made));
  };
  work_out<std::string>(exchange, std::move(make), [this, exchange](std::string&& json) {
    answer_text(exchange, std::move(json));
  });
}

std::string ApiService::fresh_id(std::string_view prefix) {
  const std::uint64_t high = ids_();
  return fmt::format("{}{:016x}{:08x}", prefix, high, ids_() >> 32);
}

void ApiService::note_end(const Exchange& exchange, int status) {
  const Answer* const answer = exchange.answer_or_null.get();
  log_end(exchange, status, answer == nullptr ? std::string_view() : answer->outcome());
}

void ApiService::note_gone(const Exchange& exchange, GoneBy by) {
  const bool is_cut_off = by == GoneBy::kServer;
  log_end(exchange, is_cut_off ? kCutOff : kClientGone, is_cut_off ? "cut_off" : "cancelled");
}

void ApiService::log_end(const Exchange& exchange, int status, std::string_view outcome) {
  const std::int64_t us = clock_.now_us() - exchange.begun_us;
  if (exchange.answer_or_null == nullptr && status < 400 && is_polled(exchange.path)) {
    STEMMA_LOG(kDebug, "server.polled", kv("request_id", exchange.request_id),
               kv("path", exchange.path), kv("us", us));
    return;
  }
  if (exchange.answer_or_null == nullptr) {
    STEMMA_LOG(kInfo, "server.request", kv("request_id", exchange.request_id),
               kv("path", exchange.path), kv("status", status), kv("us", us));
    return;
  }
  const RequestStats& stats = exchange.answer_or_null->stats();
  tally_.note(stats, outcome, us);
  exchange.answer_or_null->count_into(tally_);
  STEMMA_LOG(kInfo, "server.answer", kv("request_id", exchange.request_id),
             kv("path", exchange.path), kv("status", status), kv("outcome", outcome), kv("us", us),
             kv("prompt_tokens", stats.prompt_tokens), kv("cached_tokens", stats.cached_tokens),
             kv("computed_tokens", stats.computed_tokens), kv("ttft_us", stats.ttft_us));
}

}  // namespace stemma
