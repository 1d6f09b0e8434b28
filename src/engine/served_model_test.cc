// ServedModel and its tiers: which settings make other pages of the same tokens, and that a wrong
// flag of the tiers is named.
#include "engine/served_model.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/temp_directory.h"
#include "device/thread_ranks_fixture.h"
#include "model/random_adapter.h"
#include "model/random_model.h"
#include "model/sparse_calibration.h"
#include "template/template_date.h"

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
  options_.kv_dtype = "bf16";
  options_.tiers.codec = "int8";
  EXPECT_TRUE(seen.insert(digest()).second) << "packed and unpacked again";
  options_.tiers.codec = "plain";
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

// What tokenizer_config.json calls the end of a text ends answers, whatever config.json calls so.
TEST_F(ServedModelTest, TheTokenizersEndTokenEndsAnswers) {
  const auto ends = [&] {
    const auto model = ServedModel::open(options_);
    EXPECT_TRUE(model.ok()) << to_string(model.error());
    return (*model)->generation().eos_token_ids;
  };
  const std::vector<TokenId> before = ends();
  const auto model = ServedModel::open(options_);
  ASSERT_TRUE(model.ok());
  const std::string name = (*model)->tokenizer().decode(std::vector<TokenId>{65}, false);
  ASSERT_EQ((*model)->tokenizer().token_id(name), 65);
  std::ofstream(directory_.path() + "/tokenizer_config.json")
      << TemplateJson({{"eos_token", name}}).dump();
  std::vector<TokenId> wanted = before;
  wanted.push_back(65);
  EXPECT_EQ(ends(), wanted);
  std::ofstream(directory_.path() + "/tokenizer_config.json") << "{}";
  EXPECT_EQ(ends(), before);
  std::ofstream(directory_.path() + "/special_tokens_map.json")
      << TemplateJson({{"eos_token", {{"content", name}}}}).dump();
  EXPECT_EQ(ends(), wanted) << "older files have it there";
  std::ofstream(directory_.path() + "/generation_config.json") << R"({"eos_token_id": 1000000})";
  EXPECT_EQ(ends(), (std::vector<TokenId>{65})) << "no token of the model";
}

TEST_F(ServedModelTest, PagesHaveTheTypeOfTheWeightsWhereTheConfigurationNamesNone) {
  const auto dtype = [&] {
    const auto model = ServedModel::open(options_);
    EXPECT_TRUE(model.ok()) << to_string(model.error());
    return (*model)->pool().shape().dtype;
  };
  RandomModelOptions random = {.config = tiny_model_config("llama2"), .type = WeightType::kBf16};
  ASSERT_TRUE(write_random_model(directory_.path(), random).ok());
  random.config.weights_dtype.reset();
  ASSERT_TRUE(write_file(directory_.file("config.json"), config_json(random.config)).ok());
  EXPECT_EQ(dtype(), DType::kBF16);
  random.config.weights_dtype = DType::kF16;
  ASSERT_TRUE(write_file(directory_.file("config.json"), config_json(random.config)).ok());
  EXPECT_EQ(dtype(), DType::kF16) << "what it names goes first";
}

// The tiny model of Mistral's has a window of 40 tokens in every layer.
TEST_F(ServedModelTest, AWindowBeyondTheContextWantsNoMoreRoomThanTheContext) {
  ASSERT_TRUE(write_random_model(directory_.path(), {.config = tiny_model_config("mistral")}).ok());
  options_.engine.kv.context_tokens_max = 20;
  const auto model = ServedModel::open(options_);
  ASSERT_TRUE(model.ok()) << to_string(model.error());
  EXPECT_EQ((*model)->engine_options().kv.window_tokens, 20);
  const auto page_bytes =
      static_cast<std::int64_t>((*model)->windowed_pool_or_null()->shape().page_bytes());
  options_.kv_bytes = 3 * page_bytes;
  EXPECT_EQ(error(), "none") << "two pages of text, and one that a window begins in";
  options_.engine.kv.context_tokens_max = 40;
  EXPECT_THAT(error(), HasSubstr("kv_bytes must hold a page of"));
}

// As Mistral's tokenizers have them. In prompts they stay what they are.
TEST_F(ServedModelTest, SpecialTokensThatMarkPartsOfAnswersAreText) {
  std::ofstream(directory_.path() + "/chat_template.jinja")
      << "[INST]{{ messages[0].content }}[/INST]{{ '[TOOL_CALLS]' }}";
  std::ofstream(directory_.path() + "/tokenizer_config.json") << R"({"added_tokens_decoder":{
      "997":{"content":"[ARGS]","special":true}, "998":{"content":"[INST]","special":true},
      "999":{"content":"[TOOL_CALLS]","special":true}}})";
  const auto model = ServedModel::open(options_);
  ASSERT_TRUE(model.ok()) << to_string(model.error());
  const Tokenizer& tokenizer = (*model)->tokenizer();
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{998, 999}, true), "[TOOL_CALLS]");
  EXPECT_TRUE(tokenizer.is_special(997)) << "the template has none";
  const EncodeOptions as_text = {.parse_special_tokens = false};
  EXPECT_EQ(tokenizer.encode("[TOOL_CALLS]", {})->size(), 1U);
  EXPECT_GT(tokenizer.encode("[TOOL_CALLS]", as_text)->size(), 1U);
}

TEST_F(ServedModelTest, TemplatesThatPrintTheDateGetToday) {
  std::ofstream(directory_.path() + "/chat_template.jinja") << "{{ strftime_now('%d %b %Y') }}";
  const Result<std::int64_t> day = begin_of_day("2026-11-28");
  ASSERT_TRUE(day.ok());
  std::int64_t now_s = *day;
  options_.time_s = [&] { return now_s; };
  const auto model = ServedModel::open(options_);
  ASSERT_TRUE(model.ok()) << to_string(model.error());
  const auto prompt = [&](const RenderOptions& options) {
    const auto tokens = (*model)->encode_messages(TemplateJson::array(), options);
    EXPECT_TRUE(tokens.ok()) << to_string(tokens.error());
    return tokens.ok() ? (*model)->tokenizer().decode(*tokens, /*skip_special_tokens=*/false) : "";
  };
  EXPECT_EQ(prompt({}), "28 Nov 2026");
  now_s += 23 * 3600;
  EXPECT_EQ(prompt({}), "28 Nov 2026");
  now_s += 3600;
  EXPECT_EQ(prompt({}), "29 Nov 2026");
  RenderOptions own;
  own.strftime_now = [](std::string_view) { return std::string("a day"); };
  EXPECT_EQ(prompt(own), "a day");
}

// Opened by two ranks at once: what each has, or the error that each gets.
class ServedRanks : public ServedModelTest {
 protected:
  // Each rank opens with what `change` makes of the options, and rank 0 computes one text.
  std::vector<std::string> errors(
      const std::function<void(int rank, ServedModelOptions& options)>& change) {
    std::vector<std::string> errors(2);
    ThreadRanks(2).run([&](RankGroup& ranks) {
      ServedModelOptions options = options_;
      options.ranks = &ranks;
      change(ranks.rank(), options);
      auto model = ServedModel::open(options);
      const auto rank = static_cast<std::size_t>(ranks.rank());
      errors[rank] = model.ok() ? "none" : model.error().detail;
      if (!model.ok()) return;
      digests_[rank] = (*model)->namespace_digest();
      EXPECT_EQ((*model)->read_adapter({"late", "nowhere"}).error().code, ErrorCode::kUnsupported);
      EXPECT_EQ((*model)->take_out_adapter("a").error().code, ErrorCode::kUnsupported);
      if (!(*model)->leads()) {
        EXPECT_TRUE((*model)->follow().ok());
      }
    });
    return errors;
  }

  std::array<NamespaceDigest, 2> digests_;
};

TEST_F(ServedRanks, EachHasANamespaceOfItsOwn) {
  const NamespaceDigest alone = digest();
  const auto both = errors([](int, ServedModelOptions&) {});
  EXPECT_EQ(both, (std::vector<std::string>{"none", "none"}));
  EXPECT_NE(digests_[0], digests_[1]);
  EXPECT_NE(digests_[0], alone);
  EXPECT_NE(digests_[1], alone);
}

TEST_F(ServedRanks, AllGetTheErrorOfOne) {
  const auto less_room = errors([](int rank, ServedModelOptions& options) {
    if (rank == 1) options.kv_bytes /= 2;
  });
  EXPECT_EQ(less_room[0],
            "rank 1: --kv-bytes hold 64 pages and 0 windowed ones, on rank 0 128 and 0");
  EXPECT_EQ(less_room[1], less_room[0]);
  const auto no_room = errors([](int rank, ServedModelOptions& options) {
    if (rank == 1) options.kv_bytes = 1;
  });
  EXPECT_THAT(no_room[0], HasSubstr("rank 1: kv_bytes must hold at least one page"));
  EXPECT_EQ(no_room[1], no_room[0]);
  const auto other = errors([](int rank, ServedModelOptions& options) {
    if (rank == 1) options.weights = "int8";
  });
  EXPECT_EQ(other[0], "rank 1: its weights, flags or vector instructions are not those of rank 0");
}

// Of one size, and each would be read as the other; batches of one have no room on the other.
TEST_F(ServedRanks, TypesOfPagesAndRoomForBatchesThatDifferEndAll) {
  const std::string differ =
      "rank 1: its weights, flags or vector instructions are not those of rank 0";
  const auto other_type = errors(
      [](int rank, ServedModelOptions& options) { options.kv_dtype = rank == 0 ? "bf16" : "f16"; });
  EXPECT_EQ(other_type, std::vector<std::string>(2, differ));
  const auto less_room = errors([](int rank, ServedModelOptions& options) {
    options.engine.scheduler.step_tokens_max = rank == 0 ? 64 : 32;
    options.engine.scheduler.chunk_tokens_max = 32;
  });
  EXPECT_EQ(less_room, std::vector<std::string>(2, differ));
}

TEST_F(ServedRanks, TiersThatDifferEndAllWithWhatDiffers) {
  const auto less_memory = errors([](int rank, ServedModelOptions& options) {
    options.tiers.host_bytes = rank == 1 ? 1 << 19 : 1 << 20;
  });
  EXPECT_EQ(less_memory[0],
            "rank 1: there is host memory for 64 pages and 0 windowed ones, on rank 0 for 128 and "
            "0");
  EXPECT_EQ(less_memory[1], less_memory[0]);
  const auto no_store = errors([](int rank, ServedModelOptions& options) {
    options.tiers.host_bytes = 1 << 20;
    if (rank == 0) options.tiers.remote_url = "redis://127.0.0.1:1";
  });
  EXPECT_EQ(no_store[0],
            "rank 1: its weights, flags or vector instructions are not those of rank 0");
  const auto other_codec = errors([](int rank, ServedModelOptions& options) {
    options.kv_dtype = "bf16";
    options.tiers.remote_url = "redis://127.0.0.1:1";
    if (rank == 0) options.tiers.codec = "int8";
  });
  EXPECT_EQ(other_codec[1], no_store[0]);
  const TempDirectory directory;
  const auto no_file = errors([&](int rank, ServedModelOptions& options) {
    options.tiers.host_bytes = 1 << 20;
    if (rank == 0) options.tiers.host_file = directory.file("host");
  });
  EXPECT_EQ(no_file[1], no_store[0]);
}

TEST_F(ServedRanks, AdaptersThatDifferEndAll) {
  const TempDirectory one;
  const TempDirectory other;
  const RandomAdapterOptions adapter = {.config = tiny_model_config("llama2"), .seed = 1};
  RandomAdapterOptions another = adapter;
  another.seed = 2;
  ASSERT_TRUE(write_random_adapter(one.path(), adapter).ok());
  ASSERT_TRUE(write_random_adapter(other.path(), another).ok());
  using Sources = std::vector<AdapterSource>;
  const auto errors_with = [&](const Sources& of_first, const Sources& of_second) {
    return errors([&](int rank, ServedModelOptions& options) {
      options.adapters = rank == 0 ? of_first : of_second;
    });
  };
  const Sources both = {{"a", one.path()}, {"b", other.path()}};
  EXPECT_EQ(errors_with(both, both), (std::vector<std::string>{"none", "none"}));
  const std::vector<std::string> differ(
      2, "rank 1: its adapters are not those of rank 0: other names, files or another order");
  EXPECT_EQ(errors_with(both, {both[1], both[0]}), differ) << "another order";
  EXPECT_EQ(errors_with(both, {both[0]}), differ) << "one is missing";
  EXPECT_EQ(errors_with({both[0]}, {{"a", other.path()}}), differ) << "another of that name";
  EXPECT_EQ(errors_with({both[0]}, {{"c", one.path()}}), differ) << "another name";
  // One that a rank alone cannot read.
  const auto unread = errors_with(both, {both[0], {"b", directory_.path()}});
  EXPECT_THAT(unread[0], testing::AllOf(testing::StartsWith("rank 1: "),
                                        HasSubstr(std::string(kAdapterConfigFile))));
  EXPECT_EQ(unread[1], unread[0]);
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

// Before files are read, and whatever would become of bytes that are not counted.
TEST_F(ServedModelTest, NumbersThatAreTooLargeAreRefusedByName) {
  options_.directory = "/nonexistent";
  options_.engine.kv.page_size = std::int64_t{1} << 56;
  EXPECT_EQ(error(), "page_size must be at most 2147483647 (got 72057594037927936)");
  options_.engine.kv.page_size = 16;
  options_.engine.kv.requests_max = INT64_MAX;
  EXPECT_THAT(error(), HasSubstr("requests_max must be at most 65536"));
}

TEST_F(ServedModelTest, PagesLargerThanTheBytesAreRefused) {
  options_.engine.kv.page_size = (std::int64_t{1} << 31) - 1;
  EXPECT_THAT(error(), HasSubstr("kv_bytes must hold at least one page of"));
}

// With layers of both kinds, and with windows alone.
TEST_F(ServedModelTest, WindowedPagesLargerThanTheBytesAreRefused) {
  for (const char* const family : {"gemma3", "mistral"}) {
    const TempDirectory directory;
    const RandomModelOptions random = {.config = tiny_model_config(family)};
    ASSERT_GT(random.config.windows.tokens, 0) << family;
    ASSERT_TRUE(write_random_model(directory.path(), random).ok());
    options_.directory = directory.path();
    options_.engine.kv.page_size = 16;
    EXPECT_EQ(error(), "none") << family;
    options_.engine.kv.page_size = (std::int64_t{1} << 31) - 1;
    EXPECT_THAT(error(), HasSubstr("kv_bytes must hold")) << family;
  }
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

TEST_F(ServedModelTest, PagesThatArePackedAreNotAudited) {
  options_.tiers.codec = "int8";
  options_.engine.shadow_audit_percent = 1;
  EXPECT_THAT(error(), HasSubstr("--shadow-audit needs --tier-codec plain"));
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
