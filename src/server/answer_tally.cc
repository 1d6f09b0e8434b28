#include "server/answer_tally.h"

namespace stemma {

void AnswerTally::note(const RequestStats& stats, std::string_view outcome, std::int64_t us) {
  request.add(us);
  auto found = outcomes.find(outcome);
  if (found == outcomes.end()) found = outcomes.emplace(std::string(outcome), 0).first;
  ++found->second;
  if (stats.ttft_us <= 0) return;  // it never ran far enough to have found or computed anything
  ttft.add(stats.ttft_us);
  queue.add(stats.queue_us);
  prompt_tokens += stats.prompt_tokens;
  device_tokens += stats.cached_tokens - stats.brought.total();
  brought += stats.brought;
  computed_tokens += stats.computed_tokens;
  ++stops[static_cast<std::size_t>(stats.stop)];
}

void AnswerTally::write(MetricsText& text) const {
  text.histogram("stemma_ttft_seconds", "", ttft);
  text.histogram("stemma_queue_seconds", "", queue);
  text.histogram("stemma_request_seconds", "", request);
  text.begin("counter", "stemma_hit_tokens_total");
  text.sample("stemma_hit_tokens_total", R"(source="device")", device_tokens);
  text.sample("stemma_hit_tokens_total", R"(source="host")", brought.host);
  text.sample("stemma_hit_tokens_total", R"(source="disk")", brought.disk);
  text.sample("stemma_hit_tokens_total", R"(source="remote")", brought.remote);
  text.counter("stemma_answered_prompt_tokens_total", prompt_tokens);
  text.counter("stemma_answered_computed_tokens_total", computed_tokens);
  text.begin("counter", "stemma_prefix_stops_total");
  for (std::size_t i = 0; i < stops.size(); ++i) {
    const auto reason = prefix_stop_name(static_cast<PrefixStop>(i));
    text.sample("stemma_prefix_stops_total", label("reason", reason), stops[i]);
  }
  text.begin("counter", "stemma_answers_total");
  for (const auto& [outcome, answers] : outcomes) {
    text.sample("stemma_answers_total", label("outcome", outcome), answers);
  }
}

}  // namespace stemma
