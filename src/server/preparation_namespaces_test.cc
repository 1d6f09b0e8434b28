// Where a request's pages are found: whoever may not share them has another namespace, and what a
// request says of its turn and its end comes to the engine as it was said.
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>

#include "base/temp_directory.h"
#include "model/random_model.h"
#include "model/tiny_config.h"
#include "prefix/namespace_digest.h"
#include "server/preparation.h"
#include "server/token_requests.h"

namespace stemma {
namespace {

class PreparationNamespaces : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(
        write_random_model(directory_.path(), {.config = tiny_model_config("llama2")}).ok());
    open(/*page_size=*/4);
  }

  void open(std::int64_t page_size) {
    ServedModelOptions options;
    options.directory = directory_.path();
    options.kv_bytes = std::int64_t{1} << 20;
    options.engine.kv.context_tokens_max = 256;
    options.engine.kv.page_size = page_size;
    auto model = ServedModel::open(options);
    ASSERT_TRUE(model.ok()) << to_string(model.error());
    model_ = std::move(model).value();
    preparation_.emplace(*model_, "scribe");
  }

  CompletionRequest request(const std::string& fields) const {
    const std::string body = R"({"prompt": "And it came to pass in those days")" + fields + "}";
    return std::get<CompletionRequest>(
        read_completion_request(CompletionKind::kText, body, preparation_->rules()));
  }
  RequestSpec spec_of(const std::string& tenant, const std::string& fields) const {
    auto prepared = preparation_->prepare(request(fields), {.tenant = tenant});
    return std::get<PreparedAnswer>(std::move(prepared)).job.prompts.front().spec;
  }

  TempDirectory directory_;
  std::unique_ptr<ServedModel> model_;
  std::optional<Preparation> preparation_;
};

TEST_F(PreparationNamespaces, EachTenantSaltAndExtraKeyHasItsOwn) {
  std::set<NamespaceDigest> seen;
  for (const char* const tenant : {"", "ann", "bob"}) {
    for (const char* const fields :
         {"", R"(, "cache_salt": "x")", R"(, "extra_key": "x")",
          R"(, "cache_salt": "x", "extra_key": "x")", R"(, "cache_salt": "y", "extra_key": "x")"}) {
      const NamespaceDigest digest = spec_of(tenant, fields).namespace_digest;
      EXPECT_TRUE(seen.insert(digest).second) << tenant << fields;
      EXPECT_EQ(family_of(digest), preparation_->family_of_tenant(tenant)) << tenant << fields;
    }
  }
  EXPECT_EQ(spec_of("", "").namespace_digest, model_->namespace_digest());
  EXPECT_NE(preparation_->family_of_tenant("ann"), preparation_->family_of_tenant("bob"));
}

TEST_F(PreparationNamespaces, ATenantHasAnotherForEachModel) {
  const NamespaceDigest of_four = spec_of("ann", "").namespace_digest;
  open(/*page_size=*/8);
  EXPECT_NE(spec_of("ann", "").namespace_digest, of_four);
}

TEST_F(PreparationNamespaces, BehindASharedPrefixEachTenantHasItsOwnInItsFamily) {
  const NamespaceDigest unshared = spec_of("ann", "").namespace_digest;
  const std::string file = directory_.file("shared.jsonl");
  std::ofstream(file) << R"({"prompt": "And it came to pass in those"})"
                      << "\n";
  ASSERT_TRUE(preparation_->share_prefixes(file).ok());
  const RequestSpec ann = spec_of("ann", "");
  const RequestSpec bob = spec_of("bob", "");
  ASSERT_TRUE(ann.shared_prefix.has_value() && bob.shared_prefix.has_value());
  EXPECT_EQ(ann.shared_prefix->digest, bob.shared_prefix->digest);
  EXPECT_NE(ann.namespace_digest, bob.namespace_digest);
  EXPECT_NE(ann.namespace_digest, unshared);
  EXPECT_EQ(family_of(ann.namespace_digest), preparation_->family_of_tenant("ann"));
}

TEST_F(PreparationNamespaces, SiblingsAreLookedForBehindTheSharedPrefixToo) {
  const std::string file = directory_.file("shared.jsonl");
  std::ofstream(file) << R"({"prompt": "And it came to pass in those"})"
                      << "\n";
  ASSERT_TRUE(preparation_->share_prefixes(file).ok());
  const RequestSpec one = spec_of("ann", R"(, "extra_key": "one")");
  const RequestSpec other = spec_of("ann", R"(, "extra_key": "other")");
  ASSERT_EQ(other.siblings.size(), 1U);
  EXPECT_EQ(other.siblings[0].digest, one.namespace_digest);
  EXPECT_EQ(other.siblings[0].field, "extra_key");
}

// How long it took would tell another tenant that somebody has this form.
TEST_F(PreparationNamespaces, AFormIsKnownToTheTenantThatAskedForItAlone) {
  const auto asked = request(R"(, "guided_choice": ["yes", "no"])");
  const auto is_known = [&](const std::string& tenant) {
    return preparation_->prepare_at_once(asked, {.tenant = tenant}).has_value();
  };
  EXPECT_FALSE(is_known("ann"));
  ASSERT_TRUE(
      std::holds_alternative<PreparedAnswer>(preparation_->prepare(asked, {.tenant = "ann"})));
  EXPECT_TRUE(is_known("ann"));
  EXPECT_FALSE(is_known("bob"));
}

TEST_F(PreparationNamespaces, WhatIsSaidOfARequestsTurnAndEndComesToTheEngine) {
  const RequestSpec spec =
      spec_of("", R"(, "priority": 7, "prompt_cache_retention": "24h", "ignore_eos": true,
             "prompt_logprobs": 0, "logprob_start_len": 1000, "stop_token_ids": [3])");
  EXPECT_EQ(spec.priority, 7);
  EXPECT_EQ(spec.retention, Retention::kLong);
  EXPECT_EQ(spec.stop_tokens, std::vector<TokenId>{3}) << "and not the model's own";
  EXPECT_EQ(spec.prompt_logprobs_from, std::ssize(spec.prompt));
  const RequestSpec plain = spec_of("", "");
  EXPECT_EQ(plain.stop_tokens, model_->generation().eos_token_ids);
}

TEST_F(PreparationNamespaces, TokensBeyondTheVocabularyHaveNoText) {
  const std::string beyond = std::to_string(model_->vocab_tokens());
  const auto read = detokenize_body(R"({"tokens": [1, )" + beyond + "]}", *preparation_);
  ASSERT_TRUE(std::holds_alternative<ApiError>(read));
  EXPECT_EQ(std::get<ApiError>(read).param, "tokens[1]");
}

}  // namespace
}  // namespace stemma
