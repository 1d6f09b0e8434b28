// A model of generated files loads and computes numbers, and its bytes do not depend on how they
// are read.
#include "model/generated_files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/thread_pool.h"
#include "model/model_runner.h"
#include "model/tiny_config.h"

namespace stemma {
namespace {

TEST(GeneratedFiles, AModelLoadsFromThem) {
  GeneratedFiles files(tiny_model_config("qwen2"));
  ModelRunnerOptions options;
  options.files = &files;
  ThreadPool threads(2);
  const auto runner = ModelRunner::load("generated", options, threads);
  ASSERT_TRUE(runner.ok()) << to_string(runner.error());
  EXPECT_EQ((*runner)->config().hidden, tiny_model_config("qwen2").hidden);
}

TEST(GeneratedFiles, BytesDoNotDependOnHowTheyAreRead) {
  GeneratedFiles files(tiny_model_config("qwen2"));
  const auto file = files.open("generated/model.safetensors");
  ASSERT_TRUE(file.ok()) << to_string(file.error());
  std::vector<std::byte> whole(static_cast<std::size_t>((*file)->size_bytes()));
  ASSERT_TRUE((*file)->read_exact(0, whole).ok());
  std::vector<std::byte> piecewise(whole.size());
  constexpr std::size_t kPiece = 13;
  for (std::size_t at = 0; at < whole.size(); at += kPiece) {
    const auto piece =
        std::span(piecewise).subspan(at, std::min<std::size_t>(kPiece, whole.size() - at));
    ASSERT_TRUE((*file)->read_exact(static_cast<std::int64_t>(at), piece).ok());
  }
  EXPECT_EQ(whole, piecewise);
}

TEST(GeneratedFiles, NothingElseIsThere) {
  GeneratedFiles files(tiny_model_config("qwen2"));
  EXPECT_EQ(files.open("generated/model.safetensors.index.json").error().code,
            ErrorCode::kNotFound);
}

}  // namespace
}  // namespace stemma
