// SparseCalibration: what is written is read again; every wrong or missing field, and another
// model's calibration, is refused with the file's and the field's name.
#include "model/sparse_calibration.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "base/temp_directory.h"
#include "model/model_runner.h"
#include "model/random_model.h"

namespace stemma {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

SparseCalibration small_calibration() {
  SparseCalibration calibration = {"abc123", 32, {2, 2, 8, {}}};
  for (std::int32_t head = 0; head < 4; ++head) {
    for (std::int32_t i = 0; i < 8; ++i) calibration.channels.channels.push_back(head + 3 * i);
  }
  return calibration;
}

Json small_json() {
  return Json::parse(sparse_calibration_text(small_calibration()));
}

std::string error_of(const Json& json) {
  const auto calibration = parse_sparse_calibration(json.dump(), "c.json");
  return calibration.ok() ? "none" : calibration.error().detail;
}

TEST(SparseCalibration, IsReadAsItWasWritten) {
  const TempDirectory directory;
  const std::string path = directory.file("double_sparsity.json");
  ASSERT_TRUE(save_sparse_calibration(small_calibration(), path).ok());
  PosixFiles files;
  const auto read = load_sparse_calibration(files, path);
  ASSERT_TRUE(read.ok()) << to_string(read.error());
  EXPECT_EQ(*read, small_calibration());
}

TEST(SparseCalibration, TakesThePlaceOfAFileAndOfNothingElse) {
  const TempDirectory directory;
  const std::string link = directory.file("link.json");
  std::filesystem::create_symlink("linked.json", link);
  std::ofstream(directory.file("linked.json")) << "before";
  ASSERT_TRUE(save_sparse_calibration(small_calibration(), link).ok());
  EXPECT_TRUE(std::filesystem::is_symlink(link)) << "what it names is written";
  PosixFiles files;
  EXPECT_TRUE(load_sparse_calibration(files, directory.file("linked.json")).ok());
  const std::string pipe = directory.file("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(save_sparse_calibration(small_calibration(), pipe).error().detail,
            pipe + ": is no regular file");
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 3);
}

TEST(SparseCalibration, AMissingFileSaysWhatWritesOne) {
  const TempDirectory directory;
  PosixFiles files;
  const auto read = load_sparse_calibration(files, directory.file("none.json"));
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(read.error().detail,
              HasSubstr("none.json: there is no such file; `stemma calibrate`"));
  const Status unwritten = save_sparse_calibration(small_calibration(), directory.file("a/b.json"));
  ASSERT_FALSE(unwritten.ok());
  EXPECT_THAT(unwritten.error().detail, HasSubstr("a/b.json: cannot be written"));
}

TEST(SparseCalibration, EveryMissingFieldIsNamed) {
  for (const std::string field : {"format", "weights_sha256", "layers", "kv_heads", "head_dim",
                                  "channels_per_head", "channels"}) {
    Json json = small_json();
    json.erase(field);
    EXPECT_THAT(error_of(json), HasSubstr("c.json: " + field)) << field;
    json[field] = -3.5;
    EXPECT_THAT(error_of(json), HasSubstr("c.json: " + field)) << field;
  }
  EXPECT_THAT(error_of(Json::array()), HasSubstr("c.json"));
}

TEST(SparseCalibration, WrongChannelsAreNamed) {
  Json json = small_json();
  json["channels"][1][0][7] = 32;
  EXPECT_THAT(error_of(json),
              HasSubstr("channels[1][0]: must be 8 ascending channels of 0 ... 31"));
  json = small_json();
  json["channels"][0][1][1] = json["channels"][0][1][0];
  EXPECT_THAT(error_of(json), HasSubstr("channels[0][1]: must be 8 ascending"));
  json = small_json();
  json["channels"][0][1].erase(0);
  EXPECT_THAT(error_of(json), HasSubstr("channels[0][1]: must be 8 ascending"));
  json = small_json();
  json["channels"][1].erase(0);
  EXPECT_THAT(error_of(json), HasSubstr("channels[1]: must be a list of 2 KV heads"));
  json = small_json();
  json["layers"] = 3;
  EXPECT_THAT(error_of(json), HasSubstr("channels: must be a list of 3 layers"));
  json = small_json();
  json["channels_per_head"] = 12;
  EXPECT_THAT(error_of(json),
              HasSubstr("channels_per_head: must be a multiple of 8 below head_dim"));
  json = small_json();
  json["format"] = 2;
  EXPECT_THAT(error_of(json), HasSubstr("format"));
}

// Through the model that is to use it.
class SparseModel : public testing::Test {
 protected:
  void SetUp() override {
    const RandomModelOptions random = {.config = tiny_model_config("llama2")};
    ASSERT_TRUE(write_random_model(directory_.path(), random).ok());
    const auto runner = ModelRunner::load(directory_.path(), {}, threads_);
    ASSERT_TRUE(runner.ok());
    calibration_.weights_sha256 = (*runner)->weights_sha256();
    const ModelConfig& config = (*runner)->config();
    ASSERT_TRUE(config.layers == 2 && config.kv_heads == 2 && config.head_dim == 32);
  }

  std::string error() const {
    const std::string path = directory_.file(std::string(kSparseCalibrationFile));
    EXPECT_TRUE(save_sparse_calibration(calibration_, path).ok());
    ModelRunnerOptions options;
    options.sparse = SparseOptions{{.dense_tokens = 16, .kept_tokens = 1, .kept_of = 8}, ""};
    const auto runner = ModelRunner::load(directory_.path(), options, threads_);
    if (!runner.ok()) return runner.error().detail;
    EXPECT_EQ((*runner)->pool_shape().kind, KvKind::kDoubleSparse);
    EXPECT_EQ((*runner)->pool_shape().label_channels, 8);
    EXPECT_EQ((*runner)->heavy_channels(), calibration_.channels);
    return "none";
  }

  TempDirectory directory_;
  mutable ThreadPool threads_{1};
  SparseCalibration calibration_ = small_calibration();
};

TEST_F(SparseModel, TakesItsOwnCalibration) {
  EXPECT_EQ(error(), "none");
}

TEST_F(SparseModel, RefusesThatOfOtherWeights) {
  calibration_.weights_sha256[0] = calibration_.weights_sha256[0] == '0' ? '1' : '0';
  EXPECT_THAT(error(), HasSubstr("double_sparsity.json: weights_sha256 is "));
  EXPECT_THAT(error(), HasSubstr("another model's calibration"));
}

TEST_F(SparseModel, RefusesThatOfOtherExtents) {
  calibration_.head_dim = 64;
  EXPECT_THAT(error(), HasSubstr("double_sparsity.json: head_dim is 64, but the model's is 32"));
  calibration_.head_dim = 32;
  calibration_.channels.heads = 1;
  calibration_.channels.channels.resize(16);
  EXPECT_THAT(error(), HasSubstr("double_sparsity.json: kv_heads is 1, but the model's is 2"));
  calibration_.channels.layers = 1;
  calibration_.channels.channels.resize(8);
  EXPECT_THAT(error(), HasSubstr("double_sparsity.json: layers is 1, but the model's is 2"));
}

}  // namespace
}  // namespace stemma
