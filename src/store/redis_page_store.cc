#include "store/redis_page_store.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/digest.h"

namespace stemma {

namespace {

constexpr std::string_view kPrefix = "stemma:1:";
constexpr std::size_t kDescriptionsMax = 64;
constexpr std::size_t kRedisDescriptionBytesMax = 64 * 1024;
// What servers take as one value, by default.
constexpr std::size_t kValueBytesMax = std::size_t{512} << 20;

constexpr std::string_view kDeleteIfEqual =
    "local v=redis.call('GET',KEYS[1]) "
    "if v and redis.sha1hex(v)==ARGV[1] then return redis.call('DEL',KEYS[1]) end return 0";
constexpr std::string_view kDeleteIfMisfit =
    "if redis.call('TYPE',KEYS[1]).ok~='string' "
    "or redis.call('STRLEN',KEYS[1])~=tonumber(ARGV[1]) "
    "then return redis.call('DEL',KEYS[1]) end return 0";

RedisCommand set_command(std::string_view name, std::span<const std::byte> value,
                         std::string_view ttl_s) {
  RedisCommand command;
  command.words = {"SET", name, "NX", "EX", ttl_s};
  command.words_used = ttl_s.empty() ? 3 : 5;
  command.value = value;
  command.expects = RedisExpects::kStatusOrNil;
  return command;
}

bool is_known(const RedisCommand& command) {
  return command.answered && command.reply.kind == RespKind::kInteger;
}

// Whether it said that there is a value under its name.
bool is_there(const RedisCommand& command) {
  return is_known(command) && command.reply.number == 1;
}

// Whether there was a value under its name, which stays.
bool found_value(const RedisCommand& set) {
  return set.answered && set.reply.kind == RespKind::kNil;
}

// Whether no server of these has room.
bool found_no_room(std::span<const RedisCommand> commands) {
  const auto no_room = [](const RedisCommand& command) {
    return command.answered && command.reply.kind == RespKind::kError &&
           redis_error_kind(command.reply.text) == RedisErrorKind::kNoRoom;
  };
  return !commands.empty() && std::all_of(commands.begin(), commands.end(), no_room);
}

PageVerdict write_verdict(const RedisCommand& command) {
  if (!command.answered) return PageVerdict::kFailed;
  if (command.reply.kind != RespKind::kError) return PageVerdict::kDone;
  const RedisErrorKind kind = redis_error_kind(command.reply.text);
  const bool refused = kind == RedisErrorKind::kNoRoom || kind == RedisErrorKind::kReadOnly;
  return refused ? PageVerdict::kRefused : PageVerdict::kFailed;
}

}  // namespace

struct RedisPageStore::ReadAnswer {
  PageVerdict verdict = PageVerdict::kFailed;
  bool is_wrong = false;       // there is a value, and it must go
  bool compare_bytes = false;  // its length is right, its tag is not
};

RedisPageStore::Lane::Lane(const RedisLaneOptions& options, RedisCounters& counters,
                           RedisGivenUp& given_up, const Clock& clock, const std::string& secret)
    : servers(options, counters, given_up, clock) {
  if (!secret.empty()) seal.emplace(secret);
}

Result<std::unique_ptr<RedisPageStore>> RedisPageStore::open(const RedisPageStoreOptions& options,
                                                             const Clock& clock) {
  STEMMA_ASSIGN_OR_RETURN(const RedisUrl url, parse_redis_url(options.url));
  if (options.ttl_s < 0) return Error{ErrorCode::kInvalidArgument, "ttl_s must not be negative"};
  if (options.operation_us_max <= 0 || options.connect_us_max <= 0 || options.refresh_us < 0) {
    return Error{ErrorCode::kInvalidArgument, "limits of a remote store must be positive"};
  }
  return std::unique_ptr<RedisPageStore>(new RedisPageStore(options, url, clock));
}

RedisPageStore::RedisPageStore(const RedisPageStoreOptions& options, const RedisUrl& url,
                               const Clock& clock)
    : clock_(clock),
      operation_us_max_(options.operation_us_max),
      full_pause_us_(options.full_pause_us),
      where_(redacted(url)),
      ttl_s_(options.ttl_s == 0 ? "" : std::to_string(options.ttl_s)),
      prefix_(kPrefix),
      reader_({url, options.connect_us_max, options.refresh_us, options.breaker}, counters_,
              given_up_, clock, options.secret),
      writer_({url, options.connect_us_max, options.refresh_us, options.breaker}, counters_,
              given_up_, clock, options.secret) {
  if (!options.part.empty()) prefix_ += options.part + ":";
  if (reader_.seal) prefix_ += reader_.seal->fingerprint() + ":";
}

std::string RedisPageStore::value_name(std::span<const std::uint8_t> key) const {
  return prefix_ + to_hex(key);
}

std::int64_t RedisPageStore::limited(std::int64_t deadline_us) const {
  return std::min(deadline_us, clock_.now_us() + operation_us_max_);
}

// One for each key, answered with 1 where there is a value, which is used by it, and lasts for
// `ttl_s` from then on where there is one. TOUCH rather than EXISTS, which a server does not count
// as a use. They point into `names`.
std::vector<RedisCommand> RedisPageStore::use_commands(std::span<const PageKey> keys,
                                                       std::vector<std::string>& names,
                                                       std::string_view ttl_s) const {
  std::vector<RedisCommand> commands(keys.size());
  names.reserve(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    names.push_back(value_name(keys[i].bytes));
    commands[i].words = {ttl_s.empty() ? "TOUCH" : "EXPIRE", names[i], ttl_s};
    commands[i].words_used = ttl_s.empty() ? 2 : 3;
    commands[i].expects = RedisExpects::kInteger;
  }
  return commands;
}

Result<std::int64_t> RedisPageStore::lookup(std::span<const PageKey> keys,
                                            std::int64_t deadline_us) {
  const LaneUse use(reader_);
  deadline_us = limited(deadline_us);
  std::vector<std::string> names;
  std::vector<RedisCommand> commands = use_commands(keys, names, /*ttl_s=*/{});
  count(pages_.lookups);
  reader_.servers.run(commands, deadline_us);
  std::size_t found = 0;
  while (found < keys.size() && is_there(commands[found])) ++found;
  if (found != 0 || keys.empty() || is_known(commands[0])) return static_cast<std::int64_t>(found);
  count(pages_.lookup_failures);
  const bool is_late = clock_.now_us() >= deadline_us;
  return Error{is_late ? ErrorCode::kDeadline : ErrorCode::kIo, where_ + ": no answer"};
}

void RedisPageStore::read(std::span<PageRead> reads, std::int64_t deadline_us) {
  const LaneUse use(reader_);
  deadline_us = limited(deadline_us);
  std::vector<std::string> names;
  std::vector<FrameTag> tags(reader_.seal ? reads.size() : 0);
  std::vector<RedisCommand> commands(reads.size());
  names.reserve(reads.size());
  for (std::size_t i = 0; i < reads.size(); ++i) {
    STEMMA_CHECK(!reads[i].frame.empty(), "a frame has bytes");
    names.push_back(value_name(reads[i].key.bytes));
    commands[i].words = {"GET", names[i]};
    commands[i].words_used = 2;
    commands[i].expects = RedisExpects::kBulkOrNil;
    commands[i].target.first = reads[i].frame;
    if (reader_.seal) commands[i].target.second = tags[i];
  }
  const RedisCommand* const too_long = reader_.servers.run(commands, deadline_us);
  std::vector<WrongValue> wrong;
  for (std::size_t i = 0; i < reads.size(); ++i) {
    const FrameTag tag = reader_.seal ? tags[i] : FrameTag();
    const ReadAnswer answer = judge(reads[i], commands[i], tag, too_long == &commands[i]);
    reads[i].verdict = answer.verdict;
    if (!answer.is_wrong) continue;
    wrong.push_back({names[i], answer.compare_bytes,
                     answer.compare_bytes ? sha1_hex(reads[i].frame, tag)
                                          : std::to_string(commands[i].target.size_bytes())});
  }
  remove_values(reader_, wrong, deadline_us);
}

RedisPageStore::ReadAnswer RedisPageStore::judge(const PageRead& read, const RedisCommand& command,
                                                 const FrameTag& tag, bool too_long) {
  const RespReply& reply = command.reply;
  const bool is_error = command.answered && reply.kind == RespKind::kError;
  const bool is_wrong_type = is_error && redis_error_kind(reply.text) == RedisErrorKind::kWrongType;
  const bool is_misfit = command.answered && reply.kind == RespKind::kBulk &&
                         reply.number != static_cast<std::int64_t>(command.target.size_bytes());
  if (too_long || is_wrong_type || is_misfit) {
    count(pages_.wrong);
    return {PageVerdict::kMissing, true, false};
  }
  if (!command.answered || is_error) {
    count(pages_.read_failed);
    return {PageVerdict::kFailed};
  }
  if (reply.kind == RespKind::kNil) {
    count(pages_.missing);
    return {PageVerdict::kMissing};
  }
  if (reader_.seal && !reader_.seal->is_tag_of(read.key, read.frame, tag)) {
    count(pages_.wrong);
    return {PageVerdict::kMissing, true, true};
  }
  count(pages_.read);
  count(pages_.read_bytes, static_cast<std::int64_t>(read.frame.size()));
  return {PageVerdict::kDone};
}

void RedisPageStore::write(std::span<PageWrite> writes, std::int64_t deadline_us) {
  const LaneUse use(writer_);
  deadline_us = limited(deadline_us);
  std::vector<std::string> names;
  std::vector<FrameTag> tags(writer_.seal ? writes.size() : 0);
  std::vector<RedisCommand> commands;
  std::vector<PageWrite*> sent;
  const bool rests = clock_.now_us() < full_until_us_;
  names.reserve(writes.size());
  for (PageWrite& write : writes) {
    STEMMA_CHECK(!write.frame.empty(), "a frame has bytes");
    write.verdict = PageVerdict::kRefused;
    if (rests || write.frame.size() + sizeof(FrameTag) > kValueBytesMax) continue;
    names.push_back(value_name(write.key.bytes));
    commands.push_back(set_command(names.back(), write.frame, ttl_s_));
    if (writer_.seal) {
      tags[sent.size()] = writer_.seal->tag_of(write.key, write.frame);
      commands.back().value_tail = tags[sent.size()];
    }
    sent.push_back(&write);
  }
  writer_.servers.run(commands, deadline_us);
  std::vector<PageWrite*> found;
  for (std::size_t i = 0; i < sent.size(); ++i) {
    sent[i]->verdict = write_verdict(commands[i]);
    if (found_value(commands[i])) {
      found.push_back(sent[i]);
    } else if (sent[i]->verdict == PageVerdict::kDone) {
      count(pages_.written);
      count(pages_.written_bytes, static_cast<std::int64_t>(sent[i]->frame.size()));
    }
  }
  if (found_no_room(commands)) full_until_us_ = clock_.now_us() + full_pause_us_;
  renew_found(found, deadline_us);
  for (const PageWrite& write : writes) {
    if (write.verdict == PageVerdict::kRefused) count(pages_.refused);
    if (write.verdict == PageVerdict::kFailed) count(pages_.write_failed);
  }
  send_descriptions(deadline_us);
}

// What was to be written and is there already lasts as if it were stored now. Where it has gone
// meanwhile, or no answer comes, nobody can be told that it is stored.
void RedisPageStore::renew_found(std::span<PageWrite* const> found, std::int64_t deadline_us) {
  if (ttl_s_.empty() || found.empty()) return;
  std::vector<PageKey> keys;
  for (const PageWrite* const write : found) keys.push_back(write->key);
  std::vector<std::string> names;
  std::vector<RedisCommand> commands = use_commands(keys, names, ttl_s_);
  writer_.servers.run(commands, deadline_us);
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!is_there(commands[i])) found[i]->verdict = PageVerdict::kFailed;
  }
}

// Of what no answer came nobody knows that it is lost.
std::int64_t RedisPageStore::renew(std::span<const PageKey> keys, std::int64_t deadline_us) {
  const LaneUse use(writer_);
  std::vector<std::string> names;
  std::vector<RedisCommand> commands = use_commands(keys, names, ttl_s_);
  writer_.servers.run(commands, limited(deadline_us));
  for (std::size_t i = 0; i < commands.size(); ++i) {
    if (!is_known(commands[i])) break;
    if (!is_there(commands[i])) return static_cast<std::int64_t>(i);
  }
  return std::ssize(keys);
}

void RedisPageStore::remove(std::span<const PageRemoval> removals, std::int64_t deadline_us) {
  const LaneUse use(reader_);
  std::vector<std::string> names;
  std::vector<WrongValue> values;
  names.reserve(removals.size());
  for (const PageRemoval& removal : removals) {
    names.push_back(value_name(removal.key.bytes));
    // What was read had the right tag, so the tag can be made again.
    const FrameTag tag =
        reader_.seal ? reader_.seal->tag_of(removal.key, removal.frame) : FrameTag();
    const auto tail = std::span<const std::byte>(tag).first(reader_.seal ? tag.size() : 0);
    values.push_back({names.back(), true, sha1_hex(removal.frame, tail)});
  }
  remove_values(reader_, values, limited(deadline_us));
}

void RedisPageStore::remove_values(Lane& lane, std::span<const WrongValue> values,
                                   std::int64_t deadline_us) {
  if (values.empty()) return;
  std::vector<RedisCommand> commands;
  commands.reserve(values.size());
  for (const WrongValue& value : values) {
    RedisCommand& command = commands.emplace_back();
    command.words = {"EVAL", value.compare_bytes ? kDeleteIfEqual : kDeleteIfMisfit, "1",
                     value.name, value.argument};
    command.words_used = 5;
    command.key_at = 3;
    command.expects = RedisExpects::kInteger;
  }
  lane.servers.run(commands, deadline_us);
  for (const RedisCommand& command : commands) {
    // Zero: somebody else was faster, or the value is another one by now.
    if (is_known(command)) count(pages_.removed, command.reply.number == 1 ? 1 : 0);
    if (!is_known(command)) count(pages_.remove_failed);
  }
}

void RedisPageStore::describe(const NamespaceDigest& digest, std::string_view description) {
  const std::lock_guard lock(descriptions_mutex_);
  if (descriptions_.size() == kDescriptionsMax || description.empty() ||
      description.size() > kRedisDescriptionBytesMax) {
    return;
  }
  descriptions_.emplace_back(digest, description);
}

void RedisPageStore::send_descriptions(std::int64_t deadline_us) {
  std::vector<std::pair<NamespaceDigest, std::string>> descriptions;
  {
    const std::lock_guard lock(descriptions_mutex_);
    descriptions.swap(descriptions_);
  }
  std::vector<std::string> names;
  std::vector<RedisCommand> commands;
  names.reserve(descriptions.size());
  for (const auto& [digest, text] : descriptions) {
    names.push_back(prefix_ + "namespace:" + to_hex(digest.bytes));
    commands.push_back(set_command(names.back(), std::as_bytes(std::span(text)), ttl_s_));
  }
  if (!commands.empty()) writer_.servers.run(commands, deadline_us);
}

void RedisPageStore::visit_metrics(MetricVisitor& visitor) const {
  const auto show = [&visitor](std::string_view name, const RedisCounters::Counter& counter) {
    visitor.counter(name, counted(counter));
  };
  show("stemma_remote_lookups_total", pages_.lookups);
  show("stemma_remote_lookup_failures_total", pages_.lookup_failures);
  show("stemma_remote_read_pages_total", pages_.read);
  show("stemma_remote_read_bytes_total", pages_.read_bytes);
  show("stemma_remote_missing_pages_total", pages_.missing);
  show("stemma_remote_read_failed_pages_total", pages_.read_failed);
  show("stemma_remote_wrong_pages_total", pages_.wrong);
  show("stemma_remote_written_pages_total", pages_.written);
  show("stemma_remote_written_bytes_total", pages_.written_bytes);
  show("stemma_remote_refused_pages_total", pages_.refused);
  show("stemma_remote_write_failed_pages_total", pages_.write_failed);
  show("stemma_remote_removed_pages_total", pages_.removed);
  show("stemma_remote_remove_failed_pages_total", pages_.remove_failed);
  show("stemma_remote_purged_pages_total", pages_.purged);
  show("stemma_remote_purge_failures_total", pages_.purge_failed);
  show("stemma_remote_connects_total", counters_.connects);
  show("stemma_remote_connect_failures_total", counters_.connect_failures);
  show("stemma_remote_lost_connections_total", counters_.lost_connections);
  show("stemma_remote_missed_deadlines_total", counters_.missed_deadlines);
  show("stemma_remote_protocol_errors_total", counters_.protocol_errors);
  show("stemma_remote_error_replies_total", counters_.error_replies);
  show("stemma_remote_redirects_total", counters_.redirects);
  show("stemma_remote_topology_refreshes_total", counters_.topology_refreshes);
  show("stemma_remote_breaker_openings_total", counters_.breaker_openings);
  show("stemma_remote_breaker_refusals_total", counters_.breaker_refusals);
  visitor.gauge("stemma_remote_open_breakers",
                reader_.servers.open_breakers() + writer_.servers.open_breakers());
}

}  // namespace stemma
