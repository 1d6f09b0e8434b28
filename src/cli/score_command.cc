#include "cli/score_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numbers>
#include <utility>

#include "base/clock.h"
#include "base/file.h"
#include "cli/flag_errors.h"
#include "cli/prompt_tokens.h"
#include "cli/ranked_run.h"
#include "grammar/token_bytes.h"
#include "replay/prompts_file.h"

namespace stemma {

namespace {

constexpr std::int64_t kTextBytesMax = std::int64_t{1} << 30;

}  // namespace

ScoreCommand::ScoreCommand(Flags& program)
    : command_(program.add_command("score", "Measure how well a model foretells texts")) {
  command_.add("--text", text_, "file of a text, which is cut into pieces of --window-tokens");
  command_.add("--prompts", prompts_,
               "file of lines {\"prompt\" | \"token_ids\" | \"messages\"}, each a piece");
  command_.add("--window-tokens", window_tokens_, "of a text, which are scored by themselves")
      .capture_default_str();
  command_.add("--use-adapter", adapter_, "the NAME of an --adapter to score with");
  command_.add("--json", json_, "one JSON object");
  model_.add_to(command_).required();
}

Result<ServedModelOptions> ScoreCommand::model_options() const {
  if (text_.empty() == prompts_.empty()) {
    return Error{ErrorCode::kInvalidArgument, "--text or --prompts is wanted, and not both"};
  }
  if (window_tokens_ < 2) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--window-tokens must be at least 2 (got {})", window_tokens_)};
  }
  return model_.options();
}

Status ScoreCommand::run() {
  STEMMA_ASSIGN_OR_RETURN(const std::unique_ptr<RankGroup> ranks, model_.open_ranks());
  Result<ServedModelOptions> options = model_options();
  const auto device = model_.open_device(ranks.get());
  if (follows(ranks.get())) return follow(std::move(options), device, *ranks);
  if (!options.ok()) return told(ranks.get(), options.error());
  if (!device.ok()) return told(ranks.get(), device.error());
  options->ranks = ranks.get();
  options->backend = device->get();
  return score(std::move(options).value());
}

Status ScoreCommand::score(ServedModelOptions options) const {
  STEMMA_ASSIGN_OR_RETURN(const std::unique_ptr<ServedModel> model, ServedModel::open(options));
  STEMMA_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, model->open_engine());
  STEMMA_ASSIGN_OR_RETURN(const Pieces pieces, read_pieces(*model));
  const MonotonicClock clock;
  const std::int64_t begun_us = clock.now_us();
  STEMMA_ASSIGN_OR_RETURN(const Score score, score_all(*engine, *model, pieces));
  if (score.tokens == 0) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: no piece has two tokens", text_.empty() ? prompts_ : text_)};
  }
  print(*model, pieces, score, static_cast<double>(clock.now_us() - begun_us) * 1e-6);
  return {};
}

Result<ScoreCommand::Pieces> ScoreCommand::read_pieces(const ServedModel& model) const {
  if (!text_.empty()) return cut_text(model);
  const auto lines = read_prompts_file(prompts_);
  if (!lines.ok()) return of_file("--prompts", lines.error());
  Pieces pieces;
  for (std::size_t i = 0; i < lines->size(); ++i) {
    Result<std::vector<TokenId>> tokens = tokens_of(model, (*lines)[i]);
    if (!tokens.ok()) {
      return Error{tokens.error().code,
                   fmt::format("{}: request {}: {}", prompts_, i, tokens.error().detail)};
    }
    pieces.tokens.push_back(std::move(tokens).value());
  }
  return pieces;
}

// Each piece begins as a text does, with the special token that the tokenizer puts there. Where it
// puts none, a piece's first token follows nothing, and nobody foretells its bytes.
Result<ScoreCommand::Pieces> ScoreCommand::cut_text(const ServedModel& model) const {
  PosixFiles files;
  const auto text = read_file(files, text_, kTextBytesMax);
  if (!text.ok()) return of_file("--text", text.error());
  STEMMA_ASSIGN_OR_RETURN(const std::vector<TokenId> tokens, model.encode_text(*text, false));
  STEMMA_ASSIGN_OR_RETURN(const std::vector<TokenId> around, model.encode_text(""));
  const bool begins = !around.empty() && model.tokenizer().is_special(around.front());
  const auto window = static_cast<std::size_t>(window_tokens_ - (begins ? 1 : 0));
  Pieces pieces;
  pieces.scored_bytes = std::ssize(*text);
  for (std::size_t at = 0; at < tokens.size(); at += window) {
    std::vector<TokenId>& piece = pieces.tokens.emplace_back();
    if (begins) {
      piece.push_back(around.front());
    } else {
      pieces.scored_bytes -= std::ssize(token_bytes(model.tokenizer(), tokens[at]));
    }
    const std::size_t end = std::min(at + window, tokens.size());
    piece.insert(piece.end(), tokens.begin() + static_cast<std::ptrdiff_t>(at),
                 tokens.begin() + static_cast<std::ptrdiff_t>(end));
  }
  return pieces;
}

Status ScoreCommand::submit(Engine& engine, const ServedModel& model, const Pieces& pieces,
                            std::size_t piece) const {
  RequestSpec spec;
  spec.prompt = pieces.tokens[piece];
  spec.max_tokens = 1;
  spec.prompt_logprobs = 0;
  spec.adapter = adapter_;
  spec.namespace_digest = model.namespace_digest();
  const Result<RequestId> id = engine.submit(std::move(spec));
  if (id.ok()) return {};
  return Error{id.error().code, fmt::format("piece {}: {}", piece, id.error().detail)};
}

// Added up in the order of the pieces, so that a sum has the same bits whoever was computed beside
// whom.
Result<ScoreCommand::Score> ScoreCommand::score_all(Engine& engine, const ServedModel& model,
                                                    const Pieces& pieces) const {
  std::vector<Score> scores(pieces.tokens.size());
  std::size_t submitted = 0;
  while (submitted < pieces.tokens.size() || !engine.idle()) {
    // As many as are computed at a time, and some that wait.
    for (; submitted < pieces.tokens.size() &&
           submitted < static_cast<std::size_t>(engine.totals().finished_requests +
                                                2 * engine.options().kv.requests_max);
         ++submitted) {
      STEMMA_RETURN_IF_ERROR(submit(engine, model, pieces, submitted));
    }
    for (const EngineEvent& event : engine.step().events) {
      if (event.finish == FinishReason::kFailed) return event.error;
      Score& score = scores[event.request.index()];
      for (const TokenLogprob& entry : event.prompt_logprobs) {
        ++score.tokens;
        score.likeliest += entry.rank == 1 ? 1 : 0;
        score.nats -= static_cast<double>(entry.logprob);
      }
    }
  }
  Score sum;
  for (const Score& score : scores) {
    sum.tokens += score.tokens;
    sum.likeliest += score.likeliest;
    sum.nats += score.nats;
  }
  return sum;
}

void ScoreCommand::print(const ServedModel& model, const Pieces& pieces, const Score& score,
                         double seconds) const {
  const auto tokens = static_cast<double>(score.tokens);
  const double nats = score.nats / tokens;
  const double likeliest = static_cast<double>(score.likeliest) / tokens;
  const bool has_bytes = pieces.scored_bytes > 0;
  const double bits_per_byte =
      has_bytes ? score.nats / std::numbers::ln2 / static_cast<double>(pieces.scored_bytes) : 0;
  if (json_) {
    nlohmann::ordered_json line;
    line["pieces"] = pieces.tokens.size();
    line["tokens"] = score.tokens;
    line["nats_per_token"] = nats;
    line["perplexity"] = std::exp(nats);
    if (has_bytes) line["bits_per_byte"] = bits_per_byte;
    line["likeliest"] = likeliest;
    line["seconds"] = seconds;
    line["weights"] = model.runner().compute_format();
    std::cout << line.dump() << '\n';
    return;
  }
  std::cout << fmt::format("{} tokens in {} pieces, {:.0f} a second\n", score.tokens,
                           pieces.tokens.size(), tokens / seconds);
  std::cout << fmt::format("{:.5f} nats a token, perplexity {:.4f}", nats, std::exp(nats));
  if (has_bytes) std::cout << fmt::format(", {:.5f} bits a byte", bits_per_byte);
  std::cout << fmt::format("; {:.2f}% were the likeliest\n", 100 * likeliest);
}

}  // namespace stemma
