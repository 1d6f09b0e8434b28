// The paths of numbers: what was counted, and who holds what now.
#include <utility>

#include "base/wall_clock.h"
#include "prefix/namespace_digest.h"
#include "server/api_service.h"
#include "stemma/version.h"

namespace stemma {
namespace {

// What of a tier's numbers there is, under names without the tier's.
TemplateJson tier_json(const MetricValues& values, std::string_view tier) {
  TemplateJson json = TemplateJson::object();
  for (const char* const quantity : {"pages", "free_pages", "evictable_pages", "locked_pages",
                                     "arriving_pages", "bytes", "bytes_max"}) {
    const std::string name = "stemma_" + std::string(tier) + "_" + quantity;
    if (values.has(name)) json[quantity] = values[name];
  }
  return json;
}

TemplateJson lease_json(const RequestLease& lease) {
  TemplateJson json = {{"state", lease.state},
                       {"age_ms", static_cast<double>(lease.age_us) / 1000},
                       {"prompt_tokens", lease.prompt_tokens},
                       {"computed_tokens", lease.computed_tokens},
                       {"output_tokens", lease.output_tokens},
                       {"pages", lease.pages},
                       {"shared_pages", lease.shared_pages},
                       {"preemptions", lease.preemptions},
                       {"engine_request", lease.id.value()}};
  if (!lease.adapter.empty()) json["adapter"] = lease.adapter;
  return json;
}

TemplateJson times_json(const StepHistogram& times) {
  return {{"count", times.samples()}, {"sum_s", static_cast<double>(times.sum()) / 1e6}};
}

}  // namespace

// None where nobody asks for it, or there are none.
std::optional<MetricsSource::Adapters> ApiService::adapters_in_use(const Engine& engine) const {
  const std::size_t loaded = preparation_.adapter_names().size();
  if (!options_.metrics_compat.vllm || loaded == 0) return std::nullopt;
  MetricsSource::Adapters adapters = {.loaded = loaded, .seconds = wall_clock_seconds()};
  for (const RequestLease& lease : engine.leases()) {
    if (lease.adapter.empty()) continue;
    (lease.state == "waiting" ? adapters.waiting : adapters.running).insert(lease.adapter);
  }
  return adapters;
}

void ApiService::metrics(ExchangeId exchange, HttpRequest&&) {
  ask(exchange, [this, exchange](Engine& engine) {
    MetricsText text;
    MetricValues values;
    engine.visit_metrics(text);
    engine.visit_metrics(values);
    auto adapters = adapters_in_use(engine);
    http_->post([this, exchange, text = std::move(text), values = std::move(values),
                 prompts = loop_->prompts(), adapters = std::move(adapters)]() mutable {
      http_->visit_metrics(text);
      if (events_or_null_ != nullptr) events_or_null_->visit_metrics(text);
      text.gauge("stemma_answers_in_flight", open_answers());
      const std::int64_t generated_tokens = loop_->output_tokens();
      text.counter("stemma_generated_tokens_total", generated_tokens);
      tally_.write(text);
      const MetricsSource source = {values,
                                    tally_,
                                    options_.model_name,
                                    output_rate_.per_second(generated_tokens, clock_.now_us()),
                                    generated_tokens,
                                    prompts,
                                    std::move(adapters)};
      if (options_.metrics_compat.vllm) write_vllm_metrics(source, text);
      if (options_.metrics_compat.sglang) write_sglang_metrics(source, text);
      answer(exchange, {.content_type = std::string(kMetricsContentType), .body = text.text()});
    });
  });
}

// The same for programs that read JSON: the page asks once a second.
void ApiService::stats(ExchangeId exchange, HttpRequest&&) {
  ask(exchange, [this, exchange](Engine& engine) {
    MetricValues values;
    engine.visit_metrics(values);
    http_->post([this, exchange, values = std::move(values)] {
      TemplateJson json;
      json["model"] = options_.model_name;
      json["version"] = std::string(kVersion);
      json["eviction"] = preparation_.eviction_policy();
      json["answers_in_flight"] = open_answers();
      for (const auto& [name, value] : values.by_name()) json["metrics"][std::string(name)] = value;
      json["tokens"] = {{"prompt", tally_.prompt_tokens},  {"device", tally_.device_tokens},
                        {"host", tally_.brought.host},     {"disk", tally_.brought.disk},
                        {"remote", tally_.brought.remote}, {"computed", tally_.computed_tokens}};
      json["ttft"] = times_json(tally_.ttft);
      json["request"] = times_json(tally_.request);
      answer_json(exchange, json);
    });
  });
}

void ApiService::debug_kv(ExchangeId exchange, HttpRequest&&) {
  struct Owned {
    RequestLease lease;
    std::optional<ExchangeId> owner;
  };
  ask(exchange, [this, exchange](Engine& engine) {
    std::vector<Owned> leases;
    for (const RequestLease& lease : engine.leases()) {
      leases.push_back({lease, loop_->exchange_of(lease.id)});
    }
    MetricValues values;
    engine.visit_metrics(values);
    TemplateJson json;
    const CacheHolds holds = engine.kv().holds();
    json["leases"] = TemplateJson::array();
    json["locks"] = holds.locks;
    json["sequences"] = holds.sequences;
    json["promotions_total"] = values["stemma_promotions_total"];
    json["tickets"] = TemplateJson::array();
    for (const TransferHold& transfer : holds.transfers) {
      json["tickets"].push_back({{"kind", transfer.kind},
                                 {"pages", transfer.pages},
                                 {"first_page", transfer.first_page},
                                 {"namespace", namespace_name(transfer.digest)}});
    }
    for (const char* const tier : {"device", "host", "disk", "remote"}) {
      json["tiers"][tier] = tier_json(values, tier);
    }
    json["quotas"] = TemplateJson::array();
    for (const TenantQuota& quota : engine.kv().quotas(Tier::kDevice)) {
      json["quotas"].push_back({{"tenant", quota_tenants_.at(quota.family)},
                                {"pages", quota.pages},
                                {"quota_pages", quota.quota_pages}});
    }
    http_->post([this, exchange, leases = std::move(leases), json = std::move(json)]() mutable {
      for (const Owned& owned : leases) {
        TemplateJson lease = lease_json(owned.lease);
        const auto owner =
            owned.owner.has_value() ? exchanges_.find(*owned.owner) : exchanges_.end();
        if (owner != exchanges_.end()) {
          lease["request_id"] = owner->second.request_id;
          lease["path"] = owner->second.path;
          lease["tenant"] = owner->second.caller.tenant;
        }
        json["leases"].push_back(std::move(lease));
      }
      answer_json(exchange, json);
    });
  });
}

}  // namespace stemma
