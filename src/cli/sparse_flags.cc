#include "cli/sparse_flags.h"

namespace stemma {

namespace {

// Contexts below are cheap to attend to, and much of their mass is worth keeping.
constexpr std::int64_t kDenseTokens = 1024;

}  // namespace

void SparseFlags::add_to(Flags& command) {
  command.add("--sparse-tokens", kept_,
              "attend to N or to 1/N of the tokens, far into a context (needs a calibration)");
  command.add("--dense-tokens", dense_tokens_,
              "with --sparse-tokens: contexts of up to N tokens are attended to as a whole "
              "(1024)");
  command.add("--sparse", calibration_,
              "with --sparse-tokens: the calibration (double_sparsity.json beside the model)");
}

Result<std::optional<SparseOptions>> SparseFlags::options() const {
  if (kept_.empty()) {
    if (!dense_tokens_.has_value() && calibration_.empty()) return std::optional<SparseOptions>();
    return Error{ErrorCode::kInvalidArgument,
                 std::string(calibration_.empty() ? "--dense-tokens" : "--sparse") +
                     " needs --sparse-tokens"};
  }
  const auto dial = try_parse_kept(kept_);
  if (!dial.has_value()) {
    return Error{
        ErrorCode::kInvalidArgument,
        "--sparse-tokens must be a number of tokens or a share as 1/8 (got " + kept_ + ")"};
  }
  SparseOptions options;
  options.dial = *dial;
  options.dial.dense_tokens = dense_tokens_.value_or(kDenseTokens);
  options.calibration = calibration_;
  if (options.dial.dense_tokens < 0) {
    return Error{ErrorCode::kInvalidArgument, "--dense-tokens must be at least 0 (got " +
                                                  std::to_string(options.dial.dense_tokens) + ")"};
  }
  return std::optional<SparseOptions>(options);
}

}  // namespace stemma
