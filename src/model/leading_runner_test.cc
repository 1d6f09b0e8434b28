// LeadingRunner: what rank 0 is asked for all ranks compute, queue and copy, an error on any of
// them is that of the step and not of the next one, and the others are let go in the end.
#include "model/leading_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/temp_directory.h"
#include "device/thread_ranks_fixture.h"
#include "model/batch_message.h"
#include "model/model_runner.h"
#include "model/one_request.h"
#include "model/random_model.h"
#include "model/runner_trial.h"
#include "pool/kv_pool_factory.h"

namespace stemma {
namespace {

constexpr std::int64_t kPages = 12;
constexpr std::int64_t kPageSize = 4;

// The first `tokens` tokens of a text, as a batch.
OneRequest text_of(std::int64_t tokens) {
  return OneRequest(kPageSize, random_tokens(tokens, 200, 1));
}

// One rank: a runner of the model and a pool.
class Rank {
 public:
  Rank(const std::string& path, RankGroup* ranks_or_null, std::int64_t pages = kPages)
      : runner_(
            std::move(ModelRunner::load(path, {.rows_max = 64, .ranks = ranks_or_null}, threads_))
                .value()) {
    KvShape shape = runner_->pool_shape();
    shape.pages = pages;
    shape.page_size = kPageSize;
    pool_ = std::move(make_kv_pool(shape, KvLayout::kPageFirst, threads_)).value();
  }
  ModelRunner& runner() { return *runner_; }
  KvPools pools() { return {*pool_}; }
  // The bytes of a page.
  std::vector<std::byte> page(std::int64_t page) const {
    std::vector<std::byte> bytes;
    const KvPool& pool = *pool_;
    for (std::int64_t layer = 0; layer < pool.shape().layers; ++layer) {
      for (const auto& piece : pool.layer_pieces(layer)) {
        const std::byte* const from = piece.of(PageId(static_cast<std::int32_t>(page)));
        bytes.insert(bytes.end(), from, from + piece.bytes);
      }
    }
    return bytes;
  }

 private:
  ThreadPool threads_{1};
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<KvPool> pool_;
};

class LeadingRunnerTest : public testing::Test {
 protected:
  LeadingRunnerTest() {
    const Status written =
        write_random_model(directory_.path(), {.config = tiny_model_config("llama3")});
    STEMMA_CHECK(written.ok(), "the temporary directory can be written");
  }

  // Rank 0 does `lead`; rank 1, of a pool of `pages`, follows, and `after` looks at it then.
  void run(const std::function<void(Runner& leader, Rank& rank)>& lead,
           const std::function<void(Rank& rank)>& after = {}, std::int64_t pages = kPages) {
    ThreadRanks(2).run([&](RankGroup& ranks) {
      Rank rank(directory_.path(), &ranks, ranks.rank() == 0 ? kPages : pages);
      if (ranks.rank() == 0) {
        LeadingRunner leader(rank.runner(), ranks);
        lead(leader, rank);
        return;
      }
      EXPECT_TRUE(follow_leader(rank.runner(), rank.pools(), ranks).ok());
      if (after) after(rank);
    });
  }

  TempDirectory directory_;
};

TEST_F(LeadingRunnerTest, LogitsAreThoseOfTheModelAlone) {
  const OneRequest text = text_of(30);
  Rank alone(directory_.path(), nullptr);
  const auto expected = alone.runner().forward(text.batch(), alone.pools());
  ASSERT_TRUE(expected.ok());
  run([&](Runner& leader, Rank& rank) {
    for (int step = 0; step < 3; ++step) {
      const auto logits = leader.forward(text.batch(), rank.pools());
      ASSERT_TRUE(logits.ok()) << to_string(logits.error());
      ASSERT_EQ(logits->outputs, 1);
      EXPECT_EQ(std::memcmp(logits->logits, expected->logits,
                            static_cast<std::size_t>(expected->vocab_tokens) * sizeof(float)),
                0);
    }
  });
}

TEST_F(LeadingRunnerTest, PagesAreCopiedOnEveryRank) {
  const OneRequest text = text_of(10);
  const auto expect_copied = [](Rank& rank) { EXPECT_EQ(rank.page(9), rank.page(2)); };
  run(
      [&](Runner& leader, Rank& rank) {
        ASSERT_TRUE(leader.forward(text.batch(), rank.pools()).ok());
        ASSERT_TRUE(leader.copy_pages(rank.pools(), {PageId(2), PageId(9), {}, {}}).ok());
        expect_copied(rank);
      },
      expect_copied);
}

// One bit of page 3 and one of page 7, on rank 1 alone.
TEST_F(LeadingRunnerTest, PagesDifferWhereTheyDoOnAnyRank) {
  const auto flip = [](Rank& rank, std::int32_t page, std::int64_t layer) {
    const auto pieces = rank.pools().full.layer_pieces(layer);
    *pieces.begin()->of(PageId(page)) ^= std::byte{1};
  };
  using Layer = std::optional<std::int64_t>;
  ThreadRanks(2).run([&](RankGroup& ranks) {
    Rank rank(directory_.path(), &ranks);
    if (ranks.rank() > 0) {
      flip(rank, 3, 1);
      flip(rank, 7, 1);
      EXPECT_TRUE(follow_leader(rank.runner(), rank.pools(), ranks).ok());
      return;
    }
    flip(rank, 7, 0);
    LeadingRunner leader(rank.runner(), ranks);
    const auto compared = [&](std::int32_t a, std::int32_t b) {
      return leader.first_different_layer(rank.pools(), {PageId(a), PageId(b)}).value();
    };
    EXPECT_EQ(compared(1, 2), Layer());
    EXPECT_EQ(compared(3, 2), Layer(1));
    EXPECT_EQ(compared(2, 7), Layer(0)) << "the first of all ranks";
    EXPECT_EQ(compared(2, 1), Layer());
  });
}

// The text needs pages that rank 1 does not have: nobody waits, and what fits is computed after.
TEST_F(LeadingRunnerTest, AnErrorOfAnotherRankIsTheStepsAndTheNextOneIsComputed) {
  const OneRequest too_long = text_of(30);
  const OneRequest fits = text_of(6);
  run(
      [&](Runner& leader, Rank& rank) {
        const auto failed = leader.forward(too_long.batch(), rank.pools());
        ASSERT_FALSE(failed.ok());
        EXPECT_EQ(failed.error().detail.substr(0, 8), "rank 1: ");
        EXPECT_TRUE(leader.forward(fits.batch(), rank.pools()).ok());
      },
      {}, 3);
}

TEST_F(LeadingRunnerTest, ABatchThatNobodyTakesIsAnErrorOnAll) {
  const OneRequest text = text_of(20);
  KvBatch batch = text.batch();
  const std::vector<TokenId> wrong(batch.tokens.size(), 5'000);
  batch.tokens = wrong;
  run([&](Runner& leader, Rank& rank) {
    const auto failed = leader.forward(batch, rank.pools());
    ASSERT_FALSE(failed.ok());
    EXPECT_EQ(failed.error().detail, "batch: token 5000 of row 0 is outside the vocabulary of 291");
  });
}

// Keeps what it is to queue, and computes nothing.
class QueueingRunner final : public Runner {
 public:
  explicit QueueingRunner(std::string error) : error_(std::move(error)) {}

  Result<LogitsView> forward(const KvBatch&, KvPools) override { return LogitsView(); }
  bool queues() const override { return true; }
  bool draws() const override { return true; }
  Status queue(const KvBatch& batch, KvPools, const StepWish& wish) override {
    std::string text = wish.logits ? "logits of" : "no logits of";
    for (const TokenId token : batch.tokens) text += " " + std::to_string(token);
    for (const TokenChoice& choice : wish.choices) {
      text += " t" + std::to_string(choice.temperature) + " k" + std::to_string(choice.top_k) +
              " p" + std::to_string(choice.top_p) + " m" + std::to_string(choice.min_p) + " u" +
              std::to_string(choice.unit);
    }
    queued.push_back(text);
    return {};
  }
  Result<StepOutputs> wait() override {
    ++waits;
    if (waits == 1 && !error_.empty()) return Error{ErrorCode::kInternal, error_};
    return StepOutputs();
  }

  Status copy_pages(KvPools, const PageCopies&) override {
    ++copies;
    if (copies == 1 && !error_.empty()) return Error{ErrorCode::kInternal, error_};
    return {};
  }

  Result<std::optional<std::int64_t>> first_different_layer(KvPools, const PagePair&) override {
    if (!error_.empty()) return Error{ErrorCode::kInternal, error_};
    return std::optional<std::int64_t>();
  }

  std::vector<std::string> queued;
  int waits = 0;
  int copies = 0;

 private:
  std::string error_;
};

class LostRankTest : public LeadingRunnerTest {
 protected:
  // Rank 0 does `lead`; rank 1, whose runner may say that it is lost, follows. Then `after` looks
  // at the runner of each.
  void run(const std::function<void(Runner& leader, KvPools pools)>& lead,
           const std::function<void(int rank, const QueueingRunner& own)>& after = {}) {
    ThreadRanks(2).run([&](RankGroup& ranks) {
      Rank rank(directory_.path(), nullptr);
      QueueingRunner own(ranks.rank() == 0 ? "" : "lost");
      if (ranks.rank() == 0) {
        LeadingRunner leader(own, ranks);
        lead(leader, rank.pools());
      } else {
        EXPECT_TRUE(follow_leader(own, rank.pools(), ranks).ok());
      }
      if (after) after(ranks.rank(), own);
    });
  }
};

TEST_F(LostRankTest, PagesThatItCannotCompareAreAnErrorThatNamesIt) {
  run([](Runner& leader, KvPools pools) {
    const auto compared = leader.first_different_layer(pools, {PageId(0), PageId(1)});
    ASSERT_FALSE(compared.ok());
    EXPECT_EQ(compared.error().detail, "rank 1: lost");
  });
}

// It is of those who wanted the copy, not of whoever shares the next step.
TEST_F(LostRankTest, PagesThatItCannotCopyAreTheErrorOfTheCopyAndOfNoStep) {
  const OneRequest text = text_of(2);
  run([&](Runner& leader, KvPools pools) {
    const PageCopies copies = {PageId(0), PageId(1), {}, {}};
    const Status copied = leader.copy_pages(pools, copies);
    ASSERT_FALSE(copied.ok());
    EXPECT_EQ(copied.error().detail, "rank 1: lost");
    EXPECT_TRUE(leader.forward(text.batch(), pools).ok());
    EXPECT_TRUE(leader.copy_pages(pools, copies).ok());
  });
}

TEST_F(LostRankTest, WhatIsQueuedAndChosenIsToldToAllAndWaitedForByAll) {
  const OneRequest text = text_of(2);
  run(
      [&](Runner& leader, KvPools pools) {
        EXPECT_TRUE(leader.queues() && leader.draws());
        const std::vector<TokenChoice> choices = {
            {.temperature = 0.5f, .top_k = 7, .top_p = 0.25f, .min_p = 0.125f, .unit = 0.75}};
        KvBatch batch = text.batch();
        const std::vector<TokenId> tokens = {3, -1};
        batch.tokens = tokens;
        EXPECT_TRUE(leader.queue(batch, pools, {.choices = choices}).ok());
        EXPECT_TRUE(leader.queue(batch, pools, {.logits = false}).ok());
        EXPECT_EQ(leader.wait().error().detail, "rank 1: lost");
        EXPECT_TRUE(leader.wait().ok());
      },
      [](int rank, const QueueingRunner& own) {
        EXPECT_EQ(own.waits, 2);
        const std::string first = "logits of 3 -1 t0.500000 k7 p0.250000 m0.125000 u0.750000";
        EXPECT_EQ(own.queued, (std::vector<std::string>{rank == 0 ? first : "no " + first,
                                                        "no logits of 3 -1"}));
      });
}

TEST(BatchMessage, EveryArrayComesBack) {
  const OneRequest text = text_of(11);
  KvBatch sent = text.batch();
  const std::vector<AdapterId> adapters = {AdapterId(3)};
  sent.adapters = adapters;
  sent.windowed_slots = sent.write_slots;
  sent.windowed_table = sent.page_table;
  std::vector<std::int64_t> words;
  write_batch(sent, words);
  const auto got = read_batch(words);
  ASSERT_TRUE(got.ok());
  const auto same = [](auto a, auto b) { return std::ranges::equal(a, b); };
  EXPECT_TRUE(same(got->tokens, sent.tokens) && same(got->positions, sent.positions));
  EXPECT_TRUE(same(got->write_slots, sent.write_slots) && same(got->row_indptr, sent.row_indptr));
  EXPECT_TRUE(same(got->requests, sent.requests) && same(got->adapters, sent.adapters));
  EXPECT_TRUE(same(got->logit_rows, sent.logit_rows));
  EXPECT_TRUE(same(got->page_table.indptr, sent.page_table.indptr));
  EXPECT_TRUE(same(got->page_table.pages, sent.page_table.pages));
  EXPECT_TRUE(same(got->windowed_table.last_page_tokens, sent.windowed_table.last_page_tokens));
  EXPECT_EQ(got->page_table.page_size, kPageSize);
}

TEST(BatchMessage, WhatIsCutOffIsNoBatch) {
  std::vector<std::int64_t> words;
  write_batch(text_of(11).batch(), words);
  for (std::size_t length = 0; length < words.size(); ++length) {
    EXPECT_FALSE(read_batch(std::span(words).first(length)).ok()) << length;
  }
}

}  // namespace
}  // namespace stemma
