// The paths of the cache itself.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "http/url.h"
#include "server/api_service.h"
#include "server/receipt.h"
#include "server/warm_request.h"

namespace stemma {
namespace {

// Tokens on either side of where two texts part that are shown.
constexpr std::int64_t kShownTokens = 24;

TemplateJson explanation_json(const CacheExplanation& explanation, std::span<const TokenId> tokens,
                              const Preparation& preparation) {
  const NearestText& nearest = explanation.nearest;
  const std::int64_t common = nearest.common_tokens;
  const auto text_of = [&](std::int64_t first, std::int64_t end) {
    const std::int64_t last = std::min(end, std::ssize(tokens));
    return preparation.text_of(
        tokens.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(last - first)));
  };
  TemplateJson json;
  json["prompt_tokens"] = tokens.size();
  json["cached_tokens"]["device"] = explanation.device_tokens;
  json["cached_tokens"]["host"] = explanation.host_tokens;
  json["cached_tokens"]["stores"] = explanation.store_tokens;
  json["stopped"] =
      stop_json({explanation.stop, explanation.evicted_ago_us}, preparation.eviction_policy());
  json["common_tokens"] = common;
  json["common_text_end"] = text_of(std::max<std::int64_t>(common - kShownTokens, 0), common);
  json["prompt_goes_on"] = text_of(common, common + kShownTokens);
  json["cached_goes_on"] = nearest.cached_next.empty()
                               ? TemplateJson()
                               : TemplateJson(preparation.text_of(nearest.cached_next));
  json["saved_ms"] = ms_json(explanation.saved_us);
  return json;
}

// How long a purge is waited for; what stores have not confirmed by then goes on.
constexpr std::int64_t kPurgeUs = 2'000'000;

TemplateJson purge_json(const PurgeReport& report) {
  TemplateJson json;
  for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk, Tier::kRemote}) {
    json["purged"][std::string(tier_name(tier))] = report.pages[static_cast<std::size_t>(tier)];
  }
  json["pending"] = TemplateJson::array();
  for (const Tier tier : report.pending) json["pending"].push_back(std::string(tier_name(tier)));
  json["success"] = report.pending.empty();
  return json;
}

}  // namespace

Status ApiService::give_quotas(Engine& engine) {
  std::int64_t left_pages = engine.kv().total_pages();
  std::vector<TenantQuota> quotas;
  for (const NamedQuota& quota : options_.keys.quotas(options_.tenant_pages)) {
    if (quota.pages > left_pages) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("tenant {}: a quota of {} pages, but the others' quotas leave {} of "
                               "the device's {}",
                               quota.tenant, quota.pages, left_pages, engine.kv().total_pages())};
    }
    left_pages -= quota.pages;
    const NamespaceFamily family = preparation_.family_of_tenant(quota.tenant);
    quotas.push_back({.family = family, .quota_pages = quota.pages});
    quota_tenants_[family] = quota.tenant;
  }
  engine.set_quotas(quotas);
  return {};
}

void ApiService::warm(ExchangeId exchange, HttpRequest&& request) {
  auto read = [this, body = std::move(request.body)] {
    return read_warm_request(body, preparation_.rules());
  };
  compute(exchange, std::move(read), /*receipt_only=*/true);
}

// What a prompt would find now, and where it parts from what is cached.
void ApiService::explain(ExchangeId exchange, HttpRequest&& request) {
  auto read = [this, body = std::move(request.body)] {
    return read_warm_request(body, preparation_.rules());
  };
  prepare(exchange, std::move(read), [this, exchange](PreparedAnswer&& prepared) {
    return [this, exchange, spec = std::move(prepared.job.prompts.front().spec)]() mutable {
      ask_to_explain(exchange, std::move(spec));
    };
  });
}

void ApiService::ask_to_explain(ExchangeId exchange, RequestSpec&& spec) {
  ask(exchange, [this, exchange, spec = std::move(spec)](Engine& engine) {
    const auto explanation = engine.explain(
        spec.namespace_digest, spec.prompt, kShownTokens,
        spec.shared_prefix.has_value() ? &*spec.shared_prefix : nullptr, spec.adapter);
    TemplateJson json = explanation.has_value()
                            ? explanation_json(*explanation, spec.prompt, preparation_)
                            : TemplateJson({{"shares", false}});
    http_->post([this, exchange, json = std::move(json)] { answer_json(exchange, json); });
  });
}

// A caller's own tenant; an admin's: the one it names, or all. One that no key has may have had
// one, and have pages in lower tiers: it is purged, and the answer says so, as it may be misspelt.
void ApiService::purge(ExchangeId exchange, HttpRequest&& request) {
  const Caller& caller = exchanges_[exchange].caller;
  const bool says_nothing = request.body.empty() || request.body == "{}" || request.body == "null";
  if (!says_only(request.query, "tenant") || !says_nothing) {
    return refuse(exchange, field_error("",
                                        "the path takes ?tenant=NAME and nothing else, "
                                        "so that nobody forgets more than was meant"));
  }
  const auto read = query_value_or_null(request.query, "tenant");
  if (!read.ok()) return refuse(exchange, field_error("tenant", read.error().detail));
  const std::optional<std::string>& named = *read;
  if (named.has_value() && named->empty()) {
    return refuse(exchange, field_error("tenant", "is empty"));
  }
  const bool is_own = named.has_value() && *named == caller.tenant;
  if (named.has_value() && !caller.admin && !is_own) {
    return refuse(exchange, forbidden("only an admin's key purges another tenant"));
  }
  std::vector<NamespaceFamily> families;
  if (named.has_value() || !caller.admin) {
    families.push_back(preparation_.family_of_tenant(named.value_or(caller.tenant)));
  }
  std::optional<bool> known_tenant;
  if (named.has_value()) known_tenant = options_.keys.has_tenant(*named);
  ask_to_purge(exchange, std::move(families), known_tenant);
}

void ApiService::flush(ExchangeId exchange, HttpRequest&&) {
  ask_to_purge(exchange, {});
}

// The first look asks the engine; the later ones see how far it has come, and whether routers have
// been told.
void ApiService::ask_to_purge(ExchangeId exchange, std::vector<NamespaceFamily> families,
                              std::optional<bool> known_tenant) {
  const bool asked =
      loop_->watch([this, exchange, families = std::move(families), known_tenant, id = PurgeId(),
                    until_us = clock_.now_us() + kPurgeUs](Engine& engine) mutable {
        if (!id.valid()) {
          const Result<PurgeId> purged = engine.purge(families);
          if (!purged.ok()) {
            http_->post([this, exchange, detail = purged.error().detail] {
              refuse(exchange, overloaded(detail));
            });
            return true;
          }
          id = *purged;
          if (events_or_null_ != nullptr) events_or_null_->end_history();
        }
        const std::optional<PurgeReport> report = engine.purge_report(id);
        const bool is_told = events_or_null_ == nullptr || events_or_null_->has_ended_history();
        const bool is_over = is_told && (!report.has_value() || report->pending.empty());
        if (!is_over && clock_.now_us() < until_us) return false;
        TemplateJson json = purge_json(report.value_or(PurgeReport()));
        if (known_tenant.has_value()) json["known_tenant"] = *known_tenant;
        http_->post([this, exchange, json = std::move(json)] { answer_json(exchange, json); });
        return true;
      });
  if (!asked) refuse(exchange, overloaded("too many requests wait"));
}

}  // namespace stemma
