#include "server/answer.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

namespace stemma {
namespace {

class NoService final : public HttpService {
 public:
  void begin(ExchangeId, HttpRequest&&) override {}
  void gone(ExchangeId) override {}
};

class Answers : public testing::Test {
 protected:
  // Of an exchange that nobody listens to.
  static Answer answer(bool stream) {
    AnswerPlan plan;
    plan.stream = stream;
    return Answer(ExchangeId(7), std::move(plan));
  }

  static AnswerUpdate failure() {
    AnswerUpdate update;
    update.finish = FinishReason::kFailed;
    update.error = Error{ErrorCode::kIo, "the step failed"};
    return update;
  }

  HttpServer& http() { return *http_; }

 private:
  NoService service_;
  std::unique_ptr<HttpServer> http_ = HttpServer::open({.port = 0}, service_).value();
};

TEST_F(Answers, ThatFailBeforeAnythingWasSaidHaveTheErrorsStatus) {
  for (const bool stream : {false, true}) {
    Answer failed = answer(stream);
    EXPECT_TRUE(failed.take(failure(), http()));
    EXPECT_EQ(failed.status(), 500);
    EXPECT_EQ(failed.outcome(), "failed");
  }
}

TEST_F(Answers, ThatFailBehindTheirHeadHadItsStatus) {
  Answer failed = answer(true);
  AnswerUpdate first;
  first.is_first = true;
  first.text = "Once";
  EXPECT_FALSE(failed.take(std::move(first), http()));
  EXPECT_TRUE(failed.take(failure(), http()));
  EXPECT_EQ(failed.status(), 200);
  EXPECT_EQ(failed.outcome(), "failed");
}

}  // namespace
}  // namespace stemma
