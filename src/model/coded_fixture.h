// Files whose matrices are codes, for tests: what is read of one file, and one model in two
// directories, as codes and as the numbers that they stand for.
//
// Thread:     a test's.
// Memory:     tiny models.
// Cost:       a few files.
// Not here:   codes of each kind (random_float8, random_int8, random_packed_int).
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/function_ref.h"
#include "base/temp_directory.h"
#include "model/model_runner.h"
#include "model/random_model.h"
#include "model/runner_trial.h"
#include "model/weight_files.h"

namespace stemma {

class CodedFiles : public ::testing::Test {
 protected:
  struct Read {
    std::string dtype;
    std::vector<std::byte> bytes;
  };

  // Numbers are f32 unless a tensor has a type of its own.
  void write(const std::vector<TensorValues>& tensors, const std::string& file) {
    const Status written = write_safetensors(directory_.file(file), tensors, WeightType::kF32);
    ASSERT_TRUE(written.ok()) << to_string(written.error());
  }
  void write(const std::vector<TensorValues>& tensors) { write(tensors, "model.safetensors"); }

  WeightFiles open(const CodedConfig& coded) {
    auto opened = WeightFiles::open(files_, directory_.path(), coded);
    EXPECT_TRUE(opened.ok()) << to_string(opened.error());
    return std::move(opened).value();
  }

  // Every tensor's dtype and bytes, as a reader has them.
  std::map<std::string, Read> read(const CodedConfig& coded) {
    WeightFiles opened = open(coded);
    std::map<std::string, Read> tensors;
    const auto digest = opened.read_all(
        threads_, [&](const TensorEntry& tensor, std::span<const std::byte> bytes) -> Status {
          tensors[tensor.name] = {tensor.dtype, {bytes.begin(), bytes.end()}};
          return {};
        });
    EXPECT_TRUE(digest.ok()) << to_string(digest.error());
    return tensors;
  }

  // The numbers of one of them, whose type is `type`.
  std::vector<float> read_numbers(const CodedConfig& coded, const std::string& name,
                                  WeightType type) {
    const Read tensor = read(coded)[name];
    EXPECT_EQ((TensorEntry{.name = name, .dtype = tensor.dtype, .shape = {}}).weight_type(), type);
    return to_floats(type, tensor.bytes);
  }

  std::string error(const CodedConfig& coded) {
    const auto opened = WeightFiles::open(files_, directory_.path(), coded);
    EXPECT_FALSE(opened.ok());
    return opened.ok() ? "" : to_string(opened.error());
  }

  TempDirectory directory_;
  PosixFiles files_;
  ThreadPool threads_{2};
};

class CodedModels : public ::testing::Test {
 protected:
  static constexpr std::int64_t kTokens = 40;

  // Writes tiny model `name` as `options` say, and again with what `values_of` gives for the
  // matrices that are coded.
  void write_both(std::string_view name, const RandomModelOptions& options,
                  FunctionRef<std::vector<float>(const TensorValues&)> values_of) {
    config_ = tiny_model_config(name);
    coded_config_ = options.config.coded;
    RandomModelOptions coded = options;
    coded.config = config_;
    ASSERT_TRUE(write_random_model(wide_.path(), coded).ok());
    coded.config.coded = coded_config_;
    ASSERT_TRUE(write_random_model(coded_.path(), coded).ok());
    std::vector<TensorValues> tensors;
    for (const TensorSpec& spec : needed_tensors(config_)) {
      TensorValues tensor = {spec, random_weights(config_, spec, 1)};
      const bool is_coded =
          spec.name.ends_with("_proj.weight") || spec.name.ends_with("_mqa.weight");
      if (is_coded) tensor.values = values_of(tensor);
      tensors.push_back(std::move(tensor));
    }
    ASSERT_TRUE(write_safetensors(wide_.file("model.safetensors"), tensors, options.type).ok());
  }

  std::unique_ptr<ModelRunner> load(const TempDirectory& directory, WeightRounding rounding) {
    ModelRunnerOptions options;
    options.outputs_max = options.rows_max = kTokens;
    options.weights = rounding;
    auto runner = ModelRunner::load(directory.path(), options, threads_);
    EXPECT_TRUE(runner.ok()) << to_string(runner.error());
    return std::move(runner).value();
  }

  // Of every row of a text.
  std::vector<float> logits(const TempDirectory& directory, WeightRounding rounding) {
    const auto runner = load(directory, rounding);
    KvShape shape = runner->pool_shape();
    shape.page_size = 16;
    shape.pages = 8;
    const auto pool = make_kv_pool(shape, KvLayout::kLayerFirst, threads_);
    RunnerTrial trial(*runner, **pool);
    std::vector<TokenId> tokens;
    for (TokenId token = 0; token < kTokens; ++token) tokens.push_back(token * 5 % 200);
    EXPECT_TRUE(trial.finish(trial.add(std::move(tokens)), kTokens).ok());
    return trial.logits(0);
  }

  // Of the coded files, and of the wide ones: the same bits.
  void expect_same_logits(WeightRounding of_coded, WeightRounding of_wide) {
    const auto expected = logits(wide_, of_wide);
    const auto got = logits(coded_, of_coded);
    ASSERT_EQ(expected.size(), got.size());
    EXPECT_EQ(std::memcmp(expected.data(), got.data(), got.size() * sizeof(float)), 0);
  }

  ModelWeights weights_of(const TempDirectory& directory, const WeightOptions& options) {
    const bool is_coded = &directory == &coded_;
    auto opened =
        WeightFiles::open(files_, directory.path(), is_coded ? coded_config_ : CodedConfig());
    EXPECT_TRUE(opened.ok()) << to_string(opened.error());
    auto loaded = load_weights(config_, *opened, threads_, options);
    EXPECT_TRUE(loaded.ok()) << to_string(loaded.error());
    return std::move(loaded).value();
  }

  // A rank of two can hold its part.
  bool can_be_cut() const { return config_.kv_heads % 2 == 0 || config_.latent.rank > 0; }

  static std::vector<float> row_of(const PackedWeights& matrix, std::int64_t row) {
    std::vector<float> values(static_cast<std::size_t>(matrix.k()));
    matrix.unpack_row(row, values);
    return values;
  }

  TempDirectory wide_;
  TempDirectory coded_;
  PosixFiles files_;
  ThreadPool threads_{2};
  ModelConfig config_;  // of the wide one
  CodedConfig coded_config_;
};

}  // namespace stemma
