// ScoreCommand: `stemma score`, how well a model foretells texts: what rounded weights, keys and
// values cost is the difference of two runs.
//
// Thread:     main is the engine thread.
// Memory:     the model, its pool, and all tokens.
// Cost:       that of computing all of them.
// Not here:   logprobs (Engine), the model (engine/served_model).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/model_flags.h"
#include "engine/served_model.h"
#include "stemma/engine.h"

namespace stemma {

class ScoreCommand final : public Command {
 public:
  explicit ScoreCommand(Flags& program);
  bool chosen() const override { return command_.parsed(); }
  Status run() override;

 private:
  // Texts that are scored one by one, their first tokens given.
  struct Pieces {
    std::vector<std::vector<TokenId>> tokens;
    std::int64_t scored_bytes = 0;  // of --text
  };
  // Of tokens that follow others.
  struct Score {
    std::int64_t tokens = 0;
    std::int64_t likeliest = 0;  // of these, that the model would have taken itself
    double nats = 0;             // minus their logprobs, added up
  };

  Result<ServedModelOptions> model_options() const;
  Result<Pieces> read_pieces(const ServedModel& model) const;
  Result<Pieces> cut_text(const ServedModel& model) const;
  Status score(ServedModelOptions options) const;
  Status submit(Engine& engine, const ServedModel& model, const Pieces& pieces,
                std::size_t piece) const;
  Result<Score> score_all(Engine& engine, const ServedModel& model, const Pieces& pieces) const;
  void print(const ServedModel& model, const Pieces& pieces, const Score& score,
             double seconds) const;

  ModelFlags model_;
  std::string text_;
  std::string prompts_;
  std::string adapter_;
  std::int64_t window_tokens_ = 1024;
  bool json_ = false;
  Flags command_;
};

}  // namespace stemma
