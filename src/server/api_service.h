// ApiService: which path does what. It reads requests, has them prepared and computed, and passes
// answers on as they come.
//
//   I/O thread ──body──► work threads ──job──► I/O thread ──► engine's thread
//   I/O thread ◄───────────────────────updates, once a step────────────┘
//   I/O thread ──update that takes long──► writing threads ──what to say──► I/O thread
//
// A job is submitted by the I/O thread, which also hears of clients that go: what was cancelled
// before it was submitted is never computed. While an answer is on a writing thread the I/O
// thread does not touch it: further updates of it wait, and if its client goes it is kept until it
// is back.
//
// Thread:     the I/O thread, but for what is said to run on another.
// Memory:     one entry an exchange.
// Cost:       a look-up a request; texts are parsed and tokenised on a work thread, of which longer
//             ones have others, and so have short ones whose forms have to be compiled, so that
//             other short ones do not wait for them; what is long to write is written there or on
//             a writing thread. Streams wait for none of these.
// Not here:   sockets (http/), the shape of JSON (openai/), the engine's thread (ServingLoop).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/prng.h"
#include "events/event_publisher.h"
#include "http/http_server.h"
#include "server/answer.h"
#include "server/answer_tally.h"
#include "server/growth_rate.h"
#include "server/key_book.h"
#include "server/metrics_compat.h"
#include "server/origin_rules.h"
#include "server/preparation.h"
#include "server/serving_loop.h"
#include "server/work_thread.h"

namespace stemma {

struct AdapterRequest;

struct ApiOptions {
  std::string model_name;
  // Answers that wait or run at once: more are refused with 429 at once.
  std::int64_t answers_max = 1024;
  // Requests that wait for one of the work threads to be parsed, and bytes of their bodies.
  std::int64_t preparing_max = 1024;
  std::int64_t preparing_bytes_max = 256 << 20;
  KeyBook keys;
  // Of each tenant of these that has no quota there; absent: none.
  std::optional<std::int64_t> tenant_pages;
  // Adapters may be loaded from below it while the server runs; empty: from nowhere.
  std::string adapter_folder = {};
  // Whose pages may ask, and read the answers.
  OriginRules origins = {};
  // Names of others' dashboards beside Stemma's own, in /metrics.
  MetricsCompat metrics_compat;
};

class ApiService final : public HttpService {
 public:
  // `model` and `engine`, which computes what is asked, must outlive this.
  ApiService(ServedModel& model, const Engine& engine, ApiOptions options);
  ~ApiService() override;

  // Whom answers go to and jobs come from; before the first request. Both must outlive it.
  void attach(HttpServer& http, ServingLoop& loop, EventPublisher* events_or_null = nullptr);

  // See Preparation. Before the first request.
  Status share_prefixes(const std::string& file) { return preparation_.share_prefixes(file); }

  std::optional<HttpResponse> refusal(const HttpRequest& head) override;
  HttpResponse error(const HttpRequest& head, int status, std::string_view why) override;
  void begin(ExchangeId exchange, HttpRequest&& request) override;
  void gone(ExchangeId exchange, GoneBy by) override;

  // Gives tenants their quotas, before the engine's first step. kInvalidArgument if the device has
  // fewer pages.
  Status give_quotas(Engine& engine);

  // What a step of the engine brought.
  void take(std::vector<AnswerUpdate>&& updates);

  // Any thread, once nothing is begun any more. Waits for what uses the loop, and ends it.
  void stop_loading() { loading_.reset(); }
  // The same of what uses the model and the server alone, and may take seconds.
  void stop_preparing() {
    for (auto& each : work_) each.reset();
    forming_.reset();
    for (auto& each : writing_) each.reset();
  }

 private:
  // Of answers that were not whole when their exchange ended: no status was sent. For a client that
  // went logs of proxies have the first; the second says that the server would not go on.
  static constexpr int kClientGone = 499;
  static constexpr int kCutOff = 503;

  struct Exchange {
    std::string path;
    std::string request_id;
    std::string origin;  // whose pages may read the answer; empty: nobody's
    Caller caller;
    std::int64_t begun_us = 0;
    std::int64_t body_bytes = 0;
    std::unique_ptr<Answer> answer_or_null;  // nullptr: is being prepared, or answered at once
    bool writing = false;                    // a writing thread has the answer
    std::vector<AnswerUpdate> waiting = {};  // for it to be back
    GoneBy gone_by = GoneBy::kClient;        // where it is one of leaving_
  };
  using Verb = void (ApiService::*)(ExchangeId, HttpRequest&&);
  enum class Access : std::uint8_t { kEverybody, kKey, kAdmin };
  struct Route {
    std::string_view method;
    std::string_view path;
    Access access;
    Verb verb;
  };
  static std::span<const Route> routes();
  // What a request is for and who asks, or why it is refused.
  struct Admitted {
    const Route* route;
    Caller caller;
  };
  struct Refused {
    ApiError error;
    std::string_view allowed_method = {};  // at that path, if that is what is wrong
  };
  using Admission = std::variant<Admitted, Refused>;
  Admission admit(const HttpRequest& head) const;
  Admission admit_to(const Route& route, const HttpRequest& head) const;
  Exchange exchange_of(const HttpRequest& head);
  static HttpResponse response_to(const Refused& refused, const Exchange& exchange);
  // With the leave to read it, for pages that have it.
  static HttpResponse granted(const Exchange& exchange, HttpResponse response);

  void answer(ExchangeId exchange, HttpResponse response);
  void answer_text(ExchangeId exchange, std::string&& json);
  // REQUIRES: it is short.
  void answer_json(ExchangeId exchange, const TemplateJson& json);
  void refuse(ExchangeId exchange, const ApiError& error);

  void health(ExchangeId exchange, HttpRequest&& request);
  void version(ExchangeId exchange, HttpRequest&& request);
  void models(ExchangeId exchange, HttpRequest&& request);
  void model(ExchangeId exchange, HttpRequest&& request);
  void metrics(ExchangeId exchange, HttpRequest&& request);
  void chat(ExchangeId exchange, HttpRequest&& request);
  void completion(ExchangeId exchange, HttpRequest&& request);
  void response(ExchangeId exchange, HttpRequest&& request);
  void message(ExchangeId exchange, HttpRequest&& request);
  void count_tokens(ExchangeId exchange, HttpRequest&& request);
  void embeddings(ExchangeId exchange, HttpRequest&& request);
  void tokenize(ExchangeId exchange, HttpRequest&& request);
  void detokenize(ExchangeId exchange, HttpRequest&& request);
  void warm(ExchangeId exchange, HttpRequest&& request);
  void explain(ExchangeId exchange, HttpRequest&& request);
  void purge(ExchangeId exchange, HttpRequest&& request);
  void flush(ExchangeId exchange, HttpRequest&& request);
  void stats(ExchangeId exchange, HttpRequest&& request);
  void tree(ExchangeId exchange, HttpRequest&& request);
  void tree_node(ExchangeId exchange, HttpRequest&& request);
  void debug_kv(ExchangeId exchange, HttpRequest&& request);
  void page(ExchangeId exchange, HttpRequest&& request);
  void load_adapter(ExchangeId exchange, HttpRequest&& request);
  void unload_adapter(ExchangeId exchange, HttpRequest&& request);

  // Runs `work` on one of the work threads, and what it returns on the I/O thread, if the exchange
  // is still open then.
  using Finish = std::function<void()>;
  void work(ExchangeId exchange, std::function<Finish()> work);
  void work_on(WorkThread& thread, ExchangeId exchange, std::function<Finish()> work);
  WorkThread::Work work_of(ExchangeId exchange, std::int64_t bytes);
  WorkThread& work_thread_of(std::int64_t body_bytes);
  // The same of work that may come to nothing: `use` has what it made, or the exchange is refused.
  template <typename Made>
  void work_out(ExchangeId exchange, std::function<ApiResult<Made>()> make,
                std::function<void(Made&&)> use) {
    work(exchange, [this, exchange, make = std::move(make), use = std::move(use)]() -> Finish {
      return [this, exchange, use, made = make()]() mutable {
        if (const auto* const fault = std::get_if<ApiError>(&made)) return refuse(exchange, *fault);
        use(std::get<Made>(std::move(made)));
      };
    });
  }
  using ReadRequest = std::function<ApiResult<CompletionRequest>()>;
  // Has the request that `read` reads prepared for the caller of the exchange: `use` then gets it,
  // on the same thread, and what it returns runs on the I/O thread, or the exchange is refused.
  using UsePrepared = std::function<Finish(PreparedAnswer&&)>;
  void prepare(ExchangeId exchange, ReadRequest read, UsePrepared use);
  // The same behind all that a work thread can do at once.
  void prepare_form(ExchangeId exchange, ApiResult<CompletionRequest>&& request, UsePrepared use);
  Finish finish_of(ExchangeId exchange, ApiResult<PreparedAnswer>&& prepared,
                   const UsePrepared& use);
  using BodyReader = ApiResult<TemplateJson> (*)(std::string_view, const Preparation&);
  void answer_worked_out(ExchangeId exchange, std::string&& body, BodyReader reader);
  // Asks the engine between two steps, or refuses the exchange.
  void ask(ExchangeId exchange, ServingLoop::Question question);
  using RequestReader = ApiResult<CompletionRequest> (*)(std::string_view, const RequestRules&);
  void generate(ExchangeId exchange, RequestReader read, HttpRequest&& request);
  struct ReadyAnswer {
    ReadyJob job;
    AnswerPlan plan;
  };
  // Has the request that `read` reads prepared and computed.
  void compute(ExchangeId exchange, ReadRequest read, bool receipt_only = false);
  void start(ExchangeId exchange, ReadyAnswer&& ready);
  // Answers that are computed or written, or wait for it.
  std::int64_t open_answers() const { return loop_->answers_in_flight() + writings_; }
  // Says it; the exchange is gone afterwards where that ends the answer.
  void tell(ExchangeId exchange, AnswerOutput&& output);
  void write(WorkThread& thread, ExchangeId exchange, Exchange& entry, AnswerUpdate&& update);
  // What a writing thread gave back; nothing: it could not be written.
  void written(ExchangeId exchange, std::optional<AnswerOutput>&& output);
  void ask_to_explain(ExchangeId exchange, RequestSpec&& spec);
  void tell_trees(ExchangeId exchange, std::int64_t page_size, TreeListing&& device,
                  TreeListing&& host);
  void tell_text(ExchangeId exchange, std::string name, NodeText&& text);
  // Has the engine forget these families, all where there is none, and answers what became of it
  // when every store has confirmed it, or after a while; and, of a tenant that was named, whether
  // it is known.
  void ask_to_purge(ExchangeId exchange, std::vector<NamespaceFamily> families,
                    std::optional<bool> known_tenant = std::nullopt);
  void load_now(ExchangeId exchange, const AdapterRequest& wanted);
  void tell_adapters(ExchangeId exchange, std::string_view what, const std::string& name,
                     const Status& outcome);
  TemplateJson model_json(std::string_view name) const;
  std::string fresh_id(std::string_view prefix);
  // It has its answer.
  void note_end(const Exchange& exchange, int status);
  // It has none, or not all of it.
  void note_gone(const Exchange& exchange, GoneBy by);
  void log_end(const Exchange& exchange, int status, std::string_view outcome);
  std::optional<MetricsSource::Adapters> adapters_in_use(const Engine& engine) const;

  ServedModel& model_;    // between two steps, but for what any thread may ask
  const Engine& engine_;  // the same
  ApiOptions options_;
  Preparation preparation_;
  std::map<NamespaceFamily, std::string> quota_tenants_;  // fixed once quotas are given
  MonotonicClock clock_;
  HttpServer* http_ = nullptr;
  ServingLoop* loop_ = nullptr;
  EventPublisher* events_or_null_ = nullptr;
  Prng ids_;
  double started_s_;
  AnswerTally tally_;
  GrowthRate output_rate_;  // of ServingLoop::output_tokens
  std::unordered_map<ExchangeId, Exchange> exchanges_;
  // Whose clients went, or were cut off, while a writing thread had their answers.
  std::unordered_map<ExchangeId, Exchange> leaving_;
  std::int64_t writings_ = 0;  // answers that writing threads have
  // Their works use all of this: first to end.
  std::array<std::unique_ptr<WorkThread>, 3> work_;  // by bytes of the body
  std::unique_ptr<WorkThread> forming_;              // of short requests with a new form
  std::unique_ptr<WorkThread> loading_;              // of adapters, which may take seconds
  // Of answers, for which new requests shall not wait: that take long, and that take very long.
  std::array<std::unique_ptr<WorkThread>, 2> writing_;
};

}  // namespace stemma
