// From a request for an answer to the answer's end: prepared, computed, passed on as it comes.
#include <utility>

#include "base/wall_clock.h"
#include "server/api_service.h"

namespace stemma {
namespace {

std::string_view id_prefix(const AnswerPlan& plan) {
  if (plan.shape == AnswerShape::kMessage) return "msg_";
  if (plan.shape == AnswerShape::kResponse) return "resp_";
  return plan.head.kind == CompletionKind::kChat ? "chatcmpl-" : "cmpl-";
}

}  // namespace

void ApiService::generate(ExchangeId exchange, RequestReader read, HttpRequest&& request) {
  if (open_answers() >= options_.answers_max) {
    return refuse(exchange, overloaded("as many answers as may wait are waiting"));
  }
  compute(exchange, [this, read, body = std::move(request.body)] {
    return read(body, preparation_.rules());
  });
}

void ApiService::compute(ExchangeId exchange, ReadRequest read, bool receipt_only) {
  prepare(exchange, std::move(read), [this, exchange, receipt_only](PreparedAnswer&& prepared) {
    prepared.plan.receipt_only = receipt_only;
    return [this, exchange,
            ready = ReadyAnswer{.job = make_ready(engine_, std::move(prepared.job)),
                                .plan = std::move(prepared.plan)}]() mutable {
      start(exchange, std::move(ready));
    };
  });
}

void ApiService::start(ExchangeId exchange, ReadyAnswer&& ready) {
  Exchange& entry = exchanges_.at(exchange);
  if (open_answers() + ready.plan.answers() > options_.answers_max) {
    return refuse(exchange, overloaded("as many answers as may wait are waiting"));
  }
  AnswerPlan& plan = ready.plan;
  plan.head.id = fresh_id(id_prefix(plan));
  plan.head.created_s = static_cast<std::int64_t>(wall_clock_seconds());
  plan.request_id = entry.request_id;
  entry.answer_or_null = std::make_unique<Answer>(std::move(plan));
  ready.job.exchange = exchange;
  if (loop_->submit(std::move(ready.job))) return;
  entry.answer_or_null = nullptr;
  refuse(exchange, overloaded("the queue is full"));
}

void ApiService::take(std::vector<AnswerUpdate>&& updates) {
  for (AnswerUpdate& update : updates) {
    const ExchangeId exchange = update.exchange;
    const auto found = exchanges_.find(exchange);
    if (found == exchanges_.end()) continue;  // its client has gone, or one of its answers failed
    Exchange& entry = found->second;
    if (entry.writing) {
      entry.waiting.push_back(std::move(update));
      continue;
    }
    switch (entry.answer_or_null->time_of(update)) {
      case Answer::Time::kShort:
        tell(exchange, entry.answer_or_null->take(std::move(update)));
        break;
      case Answer::Time::kLong:
        write(*writing_[0], exchange, entry, std::move(update));
        break;
      case Answer::Time::kVeryLong:
        write(*writing_[1], exchange, entry, std::move(update));
        break;
    }
  }
}

void ApiService::tell(ExchangeId exchange, AnswerOutput&& output) {
  if (output.head.has_value()) {
    http_->begin_stream(exchange, granted(exchanges_.at(exchange), *std::move(output.head)));
  }
  if (!output.events.empty()) http_->write(exchange, output.events);
  if (!output.ends) return;
  const auto found = exchanges_.find(exchange);
  if (output.whole.has_value()) {
    http_->respond(exchange, granted(found->second, *std::move(output.whole)));
  } else {
    http_->end_stream(exchange);
  }
  note_end(found->second, found->second.answer_or_null->status());
  exchanges_.erase(found);
  // The others of a request that failed are of no use.
  if (output.failed) loop_->cancel(exchange);
}

void ApiService::write(WorkThread& thread, ExchangeId exchange, Exchange& entry,
                       AnswerUpdate&& update) {
  WorkThread::Work work = {.whose = exchange, .run = {}};
  work.run = [this, exchange, answer = entry.answer_or_null.get(),
              update = std::move(update)]() mutable {
    http_->post([this, exchange, output = answer->take(std::move(update))]() mutable {
      written(exchange, std::move(output));
    });
  };
  work.failed = [this, exchange](std::string_view) {
    http_->post([this, exchange] { written(exchange, std::nullopt); });
  };
  if (!thread.try_post(std::move(work))) {
    return tell(exchange, entry.answer_or_null->fail(overloaded("too many answers are written")));
  }
  entry.writing = true;
  ++writings_;
}

void ApiService::written(ExchangeId exchange, std::optional<AnswerOutput>&& output) {
  --writings_;
  const auto left = leaving_.find(exchange);
  if (left != leaving_.end()) {
    note_gone(left->second, left->second.gone_by);
    leaving_.erase(left);
    return;
  }
  Exchange& entry = exchanges_.at(exchange);
  entry.writing = false;
  std::vector<AnswerUpdate> waiting = std::exchange(entry.waiting, {});
  if (!output.has_value()) {
    output = entry.answer_or_null->fail(server_error("the answer cannot be written"));
  }
  tell(exchange, *std::move(output));
  take(std::move(waiting));
}

}  // namespace stemma
