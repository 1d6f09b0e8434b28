// ServedModel: which settings make other pages of the same tokens.
#include "engine/served_model.h"

#include <gtest/gtest.h>

#include <set>

#include "base/temp_directory.h"
#include "model/random_model.h"

namespace stemma {
namespace {

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

  TempDirectory directory_;
  ServedModelOptions options_;
};

TEST_F(ServedModelTest, TheNamespaceTellsPagesApartThatCannotServeEachOther) {
  std::set<NamespaceDigest> seen = {digest()};
  options_.engine.kv.page_size = 8;
  EXPECT_TRUE(seen.insert(digest()).second) << "page size";
  options_.kv_dtype = "bf16";
  EXPECT_TRUE(seen.insert(digest()).second) << "dtype";
  options_.attention = "reference";
  EXPECT_TRUE(seen.insert(digest()).second) << "attention";
  // Neither room nor order of the pool changes what a page says.
  options_.kv_layout = "page_first";
  options_.kv_bytes *= 2;
  EXPECT_FALSE(seen.insert(digest()).second);
}

}  // namespace
}  // namespace stemma
