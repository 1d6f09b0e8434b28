// What every fuzz target is given without a fuzzer: its corpus, the empty input, and each input of
// the corpus cut in half. A target that no longer compiles fails this test's build.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

// Built beside the tree: FUZZ_TARGET(name) for each target, whose entry has the target's name here.
#define FUZZ_TARGET(name) extern "C" int name(const std::uint8_t* bytes, std::size_t size_bytes);
#include "fuzz_targets.inc"
#undef FUZZ_TARGET

namespace {

using Bytes = std::vector<std::uint8_t>;

struct Target {
  const char* name;
  int (*run)(const std::uint8_t* bytes, std::size_t size_bytes);
};

constexpr Target kTargets[] = {
#define FUZZ_TARGET(name) {#name, &name},
#include "fuzz_targets.inc"
#undef FUZZ_TARGET
};

std::vector<std::filesystem::path> corpus_of(const Target& target) {
  std::vector<std::filesystem::path> files;
  const std::filesystem::path folder = std::filesystem::path("fuzz/corpus") / target.name;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    files.push_back(entry.path());
  }
  return files;
}

Bytes read_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

class FuzzCorpus : public testing::TestWithParam<Target> {};

TEST_P(FuzzCorpus, EveryInputRunsToItsEnd) {
  const Target& target = GetParam();
  const std::vector<std::filesystem::path> files = corpus_of(target);
  ASSERT_FALSE(files.empty()) << "a target without a corpus";
  for (const std::filesystem::path& path : files) {
    SCOPED_TRACE(path.string());
    Bytes input = read_bytes(path);
    EXPECT_EQ(target.run(input.data(), input.size()), 0);
    input.resize(input.size() / 2);
    EXPECT_EQ(target.run(input.data(), input.size()), 0);
  }
  const Bytes nothing;
  EXPECT_EQ(target.run(nothing.data(), 0), 0);
}

INSTANTIATE_TEST_SUITE_P(Targets, FuzzCorpus, testing::ValuesIn(kTargets),
                         [](const auto& named) { return std::string(named.param.name); });

}  // namespace
