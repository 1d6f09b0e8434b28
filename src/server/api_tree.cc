// The paths of the cache's trees: which nodes there are, and the text of one.
#include <fmt/format.h>

#include <charconv>
#include <utility>

#include "http/url.h"
#include "prefix/namespace_digest.h"
#include "prefix/tree_listing.h"
#include "server/api_service.h"

namespace stemma {
namespace {

constexpr std::int64_t kNodesShown = 200;
constexpr std::int64_t kNodesMax = 5000;
// Of what comes before a node's own text.
constexpr std::int64_t kShownBefore = 48;

// "d12": node 12 of the device's tree; "h12": of host memory's.
std::string node_name(Tier tier, NodeId id) {
  return fmt::format("{}{}", tier == Tier::kDevice ? 'd' : 'h', id.value());
}

std::optional<std::int64_t> try_number(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size() && number >= 0;
  return whole && !text.empty() ? std::optional(number) : std::nullopt;
}

struct NodeName {
  Tier tier;
  NodeId id;
};

std::optional<NodeName> try_node_name(std::string_view text) {
  if (text.empty() || (text[0] != 'd' && text[0] != 'h')) return std::nullopt;
  const auto number = try_number(text.substr(1));
  if (!number.has_value()) return std::nullopt;
  return NodeName{text[0] == 'd' ? Tier::kDevice : Tier::kHost, NodeId(*number)};
}

void append_nodes(const TreeListing& listing, Tier tier, std::int64_t page_size,
                  TemplateJson& json) {
  const Tier other = tier == Tier::kDevice ? Tier::kHost : Tier::kDevice;
  json["total_nodes"][std::string(tier_name(tier))] = listing.total_nodes;
  for (const TreeNode& node : listing.nodes) {
    json["nodes"].push_back(
        {{"id", node_name(tier, node.id)},
         {"parent",
          node.parent.valid() ? TemplateJson(node_name(tier, node.parent)) : TemplateJson()},
         {"tier", tier_name(tier)},
         {"namespace", namespace_name(node.digest)},
         {"start_tokens", node.start_tokens},
         {"tokens", node.tokens},
         {"pages", node.tokens / page_size},
         {"children", node.children},
         {"hits", node.hits},
         {"lock_count", node.lock_count},
         {"uses_ago", node.uses_ago},
         {"quarantined", node.quarantined},
         {"twin_tokens", node.twin_tokens},
         {"twin", node.twin.valid() ? TemplateJson(node_name(other, node.twin)) : TemplateJson()}});
  }
}

}  // namespace

void ApiService::tree(ExchangeId exchange, HttpRequest&& request) {
  std::int64_t nodes_max = kNodesShown;
  const auto asked_for = query_value_or_null(request.query, "nodes");
  if (!asked_for.ok()) return refuse(exchange, field_error("nodes", asked_for.error().detail));
  if (asked_for->has_value()) {
    const auto number = try_number(**asked_for);
    if (!number.has_value() || *number < 1 || *number > kNodesMax) {
      return refuse(exchange, field_error("nodes", fmt::format("must be 1 to {}", kNodesMax)));
    }
    nodes_max = *number;
  }
  ask(exchange, [this, exchange, nodes_max](Engine& engine) {
    const KvCache& kv = engine.kv();
    http_->post([this, exchange, page_size = kv.page_size(),
                 device = kv.list_nodes(Tier::kDevice, nodes_max),
                 host = kv.list_nodes(Tier::kHost, nodes_max)]() mutable {
      tell_trees(exchange, page_size, std::move(device), std::move(host));
    });
  });
}

// Thousands of nodes: neither the engine nor streams wait for their text.
void ApiService::tell_trees(ExchangeId exchange, std::int64_t page_size, TreeListing&& device,
                            TreeListing&& host) {
  work(exchange,
       [this, exchange, page_size, device = std::move(device), host = std::move(host)]() -> Finish {
         TemplateJson json;
         json["page_size"] = page_size;
         json["nodes"] = TemplateJson::array();
         append_nodes(device, Tier::kDevice, page_size, json);
         append_nodes(host, Tier::kHost, page_size, json);
         return [this, exchange, text = json_text(json)]() mutable {
           answer_text(exchange, std::move(text));
         };
       });
}

void ApiService::tree_node(ExchangeId exchange, HttpRequest&& request) {
  const auto name =
      try_node_name(std::string_view(request.path).substr(sizeof("/v1/cache/tree/") - 1));
  if (!name.has_value()) return refuse(exchange, not_found("a node is called d0, d1, … or h0, …"));
  ask(exchange, [this, exchange, name = *name](Engine& engine) {
    auto text = engine.kv().node_text(name.tier, name.id);
    http_->post([this, exchange, name, text = std::move(text)]() mutable {
      if (!text.has_value()) {
        return refuse(exchange, not_found("there is no such node, or not any more"));
      }
      tell_text(exchange, node_name(name.tier, name.id), *std::move(text));
    });
  });
}

void ApiService::tell_text(ExchangeId exchange, std::string name, NodeText&& text) {
  work(exchange, [this, exchange, name = std::move(name), text = std::move(text)]() -> Finish {
    const auto start = static_cast<std::size_t>(text.start_tokens);
    const auto before =
        static_cast<std::size_t>(std::max<std::int64_t>(text.start_tokens - kShownBefore, 0));
    const std::span<const TokenId> tokens(text.tokens);
    TemplateJson json;
    json["id"] = name;
    json["namespace"] = namespace_name(text.digest);
    json["start_tokens"] = text.start_tokens;
    json["tokens"] = std::ssize(tokens) - text.start_tokens;
    json["text"] = preparation_.text_of(tokens.subspan(start));
    json["text_before"] = preparation_.text_of(tokens.subspan(before, start - before));
    return [this, exchange, text = json_text(json)]() mutable {
      answer_text(exchange, std::move(text));
    };
  });
}

}  // namespace stemma
