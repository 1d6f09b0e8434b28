// ServedModel and its tiers: which settings make other pages of the same tokens, and that a wrong
// flag of the tiers is named.
#include "engine/served_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/temp_directory.h"
#include "model/random_model.h"
#include "model/sparse_calibration.h"

namespace stemma {
namespace {

using testing::HasSubstr;

class ServedModelTest : public testing::Test {
 protected:
  void SetUp() override {
    const RandomModelOptions random = {.config = tiny_model_config("llama2")};
    ASSERT_TRUE(write_random_model(directory_.path(), random).ok());
    options_.directory = directory_.path();
    options_.kv_bytes = std::int64_t{1} << 20;
    options_.engine.kv.context_tokens_max = 256;
  }
  NamespaceDigest digest() const {
    const auto model = ServedModel::open(options_);
    EXPECT_TRUE(model.ok()) << to_string(model.error());
    return model.ok() ? (*model)->namespace_digest() : NamespaceDigest();
  }
  std::string error() const {
    const auto model = ServedModel::open(options_);
    return model.ok() ? "none" : model.error().detail;
  }

  TempDirectory directory_;
  ServedModelOptions options_;
};

TEST_F(ServedModelTest, TheNamespaceTellsPagesApartThatCannotServeEachOther) {
  std::set<NamespaceDigest> seen = {digest()};
  options_.engine.kv.page_size = 8;
  EXPECT_TRUE(seen.insert(digest()).second) << "page size";
  options_.kv_dtype = "bf16";
  EXPECT_TRUE(seen.insert(digest()).second) << "dtype";
  for (const char* const dtype : {"fp8_e4m3", "fp8_e5m2", "int8"}) {
    options_.kv_dtype = dtype;
    EXPECT_TRUE(seen.insert(digest()).second) << dtype;
  }
  options_.kv_dtype = "fp8";
  EXPECT_FALSE(seen.insert(digest()).second) << "another name of fp8_e4m3";
  options_.kv_dtype = "bf16";
  options_.attention = "reference";
  EXPECT_TRUE(seen.insert(digest()).second) << "attention";
  // Neither room nor order of the pool changes what a page says.
  options_.kv_layout = "page_first";
  options_.kv_bytes *= 2;
  EXPECT_FALSE(seen.insert(digest()).second);
}

TEST_F(ServedModelTest, NumbersThatMakeNoSenseAreRefusedByName) {
  options_.engine.kv.page_size = 0;
  EXPECT_EQ(error(), "page_size must be at least 1 (got 0)");
  options_.engine.kv.page_size = 16;
  options_.engine.kv.context_tokens_max = -1;
  EXPECT_EQ(error(), "context_tokens_max must be at least 0 (got -1)");
  options_.engine.kv.context_tokens_max = 256;
  options_.tiers.host_bytes = -4096;
  EXPECT_EQ(error(), "host_bytes must be at least 0 (got -4096)");
}

TEST_F(ServedModelTest, ACodecOverAScaledDtypeIsRefusedByName) {
  options_.kv_dtype = "int8";
  options_.tiers.codec = "int4";
  EXPECT_EQ(error(),
            "--tier-codec int4: --kv-dtype int8 needs plain, for its pages are packed already");
}

TEST_F(ServedModelTest, TheNamespaceTellsPagesOfOtherDialsAndChannelsApart) {
  std::set<NamespaceDigest> seen = {digest()};
  SparseCalibration calibration;
  {
    const auto model = ServedModel::open(options_);
    ASSERT_TRUE(model.ok());
    const ModelConfig& config = (*model)->runner().config();
    calibration = {(*model)->runner().weights_sha256(), config.head_dim, {}};
    calibration.channels = {config.layers, config.kv_heads, 8, {}};
    for (std::int64_t i = 0; i < config.layers * config.kv_heads * 8; ++i) {
      calibration.channels.channels.push_back(static_cast<std::int32_t>(i % 8));
    }
  }
  const std::string path = directory_.file(std::string(kSparseCalibrationFile));
  options_.sparse = SparseOptions{{.dense_tokens = 16, .kept_tokens = 1, .kept_of = 8}, ""};
  EXPECT_THAT(error(), HasSubstr("double_sparsity.json: there is no such file"));
  ASSERT_TRUE(save_sparse_calibration(calibration, path).ok());
  EXPECT_TRUE(seen.insert(digest()).second) << "sparse";
  options_.sparse->dial.kept_of = 4;
  EXPECT_TRUE(seen.insert(digest()).second) << "kept";
  options_.sparse->dial.dense_tokens = 17;
  EXPECT_TRUE(seen.insert(digest()).second) << "dense tokens";
  calibration.channels.channels[7] = 8;
  ASSERT_TRUE(save_sparse_calibration(calibration, path).ok());
  EXPECT_TRUE(seen.insert(digest()).second) << "channels";
  options_.kv_dtype = "int8";
  EXPECT_THAT(error(), HasSubstr("int8 is scaled, but double_sparse labels"));
  options_.tiers.codec = "int8";
  EXPECT_THAT(error(), HasSubstr("--tier-codec int8: sparse attention needs plain"));
}

TEST_F(ServedModelTest, AWrongFlagOfATierIsNamed) {
  options_.tiers.disk_directory = directory_.file("disk");
  options_.tiers.disk_bytes = 1024;
  EXPECT_THAT(error(), HasSubstr("--disk-bytes must be at least 524288 (got 1024)"));
  options_.tiers.disk_directory = directory_.file("config.json");
  options_.tiers.disk_bytes = std::int64_t{16} << 20;
  EXPECT_THAT(error(), HasSubstr("--disk: "));
  options_.tiers.disk_directory = "";
  options_.tiers.host_bytes = 1;
  EXPECT_THAT(error(), HasSubstr("--host-bytes: "));
  options_.tiers.host_layout = "sideways";
  EXPECT_THAT(error(), HasSubstr("--host-layout: "));
  options_.tiers.remote_url = "http://somewhere";
  EXPECT_THAT(error(), HasSubstr("--remote: "));
}

}  // namespace
}  // namespace stemma
