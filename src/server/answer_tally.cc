#include "server/answer_tally.h"

#include <algorithm>

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

void AnswerTally::note_prompt(const RequestStats& prompt, std::span<const GeneratedText> answers) {
  if (prompt.ttft_us <= 0) return;  // the first of them failed before it said anything
  std::int64_t longest = -1;
  for (const GeneratedText& answer : answers) {
    if (!answer.ended) continue;
    longest = std::max(longest, answer.tokens);
    decode.add(answer.decode_us);
    answer_lengths.add(answer.tokens);
    const std::int64_t gaps = answer.tokens - 1;
    if (gaps > 0) output_token.add(answer.decode_us / gaps, gaps);
  }
  if (longest < 0) return;
  prefill.add(prompt.ttft_us - prompt.queue_us);
  prompt_lengths.add(prompt.prompt_tokens);
  longest_lengths.add(longest);
}

std::int64_t AnswerTally::answers(std::string_view outcome) const {
  const auto found = outcomes.find(outcome);
  return found == outcomes.end() ? 0 : found->second;
}

void AnswerTally::write(MetricsText& text) const {
  text.histogram("stemma_ttft_seconds", "", ttft);
  text.histogram("stemma_queue_seconds", "", queue);
  text.histogram("stemma_request_seconds", "", request);
  text.histogram("stemma_prefill_seconds", "", prefill);
  text.histogram("stemma_decode_seconds", "", decode);
  text.histogram("stemma_output_token_seconds", "", output_token);
  text.histogram("stemma_prompt_length_tokens", "", prompt_lengths);
  text.histogram("stemma_answer_length_tokens", "", answer_lengths);
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
