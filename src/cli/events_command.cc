#include "cli/events_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "cli/json_lines.h"
#include "events/event_endpoint.h"
#include "events/event_index.h"
#include "events/event_stream.h"

namespace stemma {

namespace {

constexpr std::int64_t kWaitUs = 1'000'000;

const char* name_of(WireEvent::Kind kind) {
  switch (kind) {
    case WireEvent::Kind::kCleared:
      return "cleared";
    case WireEvent::Kind::kStored:
      return "stored";
    case WireEvent::Kind::kRemoved:
      return "removed";
    case WireEvent::Kind::kOther:
      break;
  }
  return "other";
}

// Prints events in their order, and keeps the index where it is wanted.
class EventPrinter final : public EventBatchSink {
 public:
  EventPrinter(bool json, EventIndex* index_or_null) : json_(json), index_or_null_(index_or_null) {}

  void take(std::uint64_t sequence, const WireBatch& batch) override {
    for (const WireEvent& event : batch.events) {
      std::cout << (json_ ? json_of(sequence, batch, event) : text_of(sequence, event)) << '\n';
    }
    std::cout.flush();
    if (index_or_null_ != nullptr) check(batch);
  }

  void forget() override {
    if (index_or_null_ != nullptr) index_or_null_->clear();
    std::cout << (json_ ? R"({"event": "lost"})" : "something is missing, or the server began anew")
              << std::endl;
  }

 private:
  static std::string json_of(std::uint64_t sequence, const WireBatch& batch,
                             const WireEvent& event) {
    nlohmann::ordered_json line = {
        {"sequence", sequence}, {"seconds", batch.seconds}, {"event", name_of(event.kind)}};
    if (batch.data_parallel_rank.has_value()) {
      line["data_parallel_rank"] = *batch.data_parallel_rank;
    }
    if (!event.hashes.empty()) line["hashes"] = nlohmann::ordered_json::array();
    for (const EventHash& hash : event.hashes) line["hashes"].push_back(to_hex(hash.bytes()));
    if (event.kind == WireEvent::Kind::kStored) {
      line["parent"] = nullptr;
      if (event.parent.has_value()) line["parent"] = to_hex(event.parent->bytes());
      line["tokens"] = event.tokens;
      line["page_size"] = event.page_size;
      if (!event.adapter.empty()) line["adapter"] = event.adapter;
      if (!event.namespace_digest.empty()) line["namespace"] = event.namespace_digest;
    }
    if (!event.medium.empty()) line["medium"] = event.medium;
    return json_line(line);
  }

  static std::string text_of(std::uint64_t sequence, const WireEvent& event) {
    std::string text = fmt::format("{} {}", sequence, name_of(event.kind));
    if (!event.hashes.empty()) {
      text += fmt::format(" {} pages, {} …", event.hashes.size(),
                          to_hex(event.hashes.front().bytes().first(
                              std::min<std::size_t>(event.hashes.front().bytes().size(), 8))));
    }
    if (event.parent.has_value()) text += " behind " + to_hex(event.parent->bytes());
    return text;
  }

  void check(const WireBatch& batch) {
    const std::int64_t before = index_or_null_->contradictions();
    index_or_null_->apply(batch);
    if (index_or_null_->contradictions() == before || before > 0) return;
    std::cerr << "stemma: " << index_or_null_->first_contradiction() << '\n';
  }

  bool json_;
  EventIndex* index_or_null_;
};

void print_summary(const EventStream& stream, const EventIndex& index, bool json) {
  const EventStream::Counters& counters = stream.counters();
  const nlohmann::ordered_json summary = {{"pages", index.pages()},
                                          {"complete", stream.complete()},
                                          {"contradictions", index.contradictions()},
                                          {"batches", counters.batches},
                                          {"replayed", counters.replayed},
                                          {"gaps", counters.gaps},
                                          {"losses", counters.losses},
                                          {"restarts", counters.restarts}};
  if (json) {
    std::cout << nlohmann::ordered_json{{"summary", summary}}.dump() << '\n';
    return;
  }
  std::cout << fmt::format(
      "{} pages{}; {} batches, {} of them replayed; {} gaps, {} losses, {} restarts, {} "
      "contradictions\n",
      index.pages(), stream.complete() ? "" : " and more", counters.batches, counters.replayed,
      counters.gaps, counters.losses, counters.restarts, index.contradictions());
}

}  // namespace

EventsCommand::EventsCommand(Flags& program)
    : command_(program.add_command("events",
                                   "The KV events of a server as they come: Stemma's, vLLM's or "
                                   "SGLang's")) {
  command_
      .add("--endpoint", options_.endpoint,
           "where the server publishes, such as tcp://127.0.0.1:5557")
      .check(check_event_endpoint)
      .required();
  command_
      .add("--replay", options_.replay_endpoint,
           "where it answers for what was missed; without it that is lost")
      .check(check_event_endpoint);
  command_.add("--topic", options_.topic, "only batches whose topic begins so");
  command_.add("--batches", batches_, "ends after so many; 0: never").capture_default_str();
  command_.add("--check", check_,
               "keep what the events say the server has; exit code 1 if they contradict");
  command_.add("--medium", medium_, "of the pages that --check keeps")
      .needs("--check")
      .capture_default_str();
  command_.add("--json", json_, "one JSON object an event, and a summary");
}

Status EventsCommand::run() {
  if (batches_ < 0) return Error{ErrorCode::kInvalidArgument, "--batches must be at least 0"};
  STEMMA_ASSIGN_OR_RETURN(const std::unique_ptr<EventFollower> follower,
                          EventFollower::open(options_));
  EventIndex index(medium_);
  EventPrinter printer(json_, check_ ? &index : nullptr);
  EventStream stream(printer, follower.get(), check_ ? AfterLoss::kNothing : AfterLoss::kWhatever);
  stream.catch_up();
  while (batches_ == 0 || stream.counters().batches < batches_) {
    STEMMA_RETURN_IF_ERROR(follower->follow(stream, kWaitUs));
  }
  print_summary(stream, index, json_);
  if (index.contradictions() == 0) return {};
  return Error{ErrorCode::kCorrupt,
               fmt::format("{}: {} contradictions; the first: {}", options_.endpoint,
                           index.contradictions(), index.first_contradiction())};
}

}  // namespace stemma
