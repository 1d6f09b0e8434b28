// SCAN tells every name that was there from its begin to its end, in pieces, some of them twice.
// What is stored of these namespaces comes from elsewhere then: this engine waits. In a cluster
// each server has its own names; where slots moved between servers meanwhile, or are still moving,
// names may have moved past the scan, and it is not done. A server that was started anew may have
// read from its disk what was gone: its scan begins again if it was being asked, the purge if it
// had been.
#include <algorithm>
#include <array>
#include <sstream>
#include <string>
#include <utility>

#include "store/redis_page_store.h"
#include "store/redis_server_state.h"
#include "tier/page_frame.h"

namespace stemma {
namespace {

constexpr std::string_view kNamesAtOnce = "1000";
constexpr std::size_t kKeyDigits = 2 * sizeof(PageKey);
constexpr std::string_view kPeekEnd = "183";
static_assert(kNamespacePeekBytes == 184, "GETRANGE names the last byte");

bool is_answer(const RedisCommand& command, RespKind kind) {
  return command.answered && command.reply.kind == kind;
}

// The next cursor and the names, moved out of a reply to SCAN.
bool take_scan(RespReply& reply, std::string& cursor, std::vector<std::string>& names) {
  if (reply.kind != RespKind::kArray || reply.items.size() != 2) return false;
  if (reply.items[0].kind != RespKind::kBulk || reply.items[0].text.empty()) return false;
  cursor = std::move(reply.items[0].text);
  for (RespReply& item : reply.items[1].items) names.push_back(std::move(item.text));
  return true;
}

// What a server of a cluster says of its own slots: the end of its line, `[` where one is on its
// way to or from it. It knows these first; a map is told by whoever has heard of them. Nothing
// where it does not say.
std::string own_slots(const RespReply& nodes) {
  constexpr int kFieldsBefore = 8;
  if (nodes.kind != RespKind::kBulk) return {};
  std::istringstream lines(nodes.text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::array<std::string, kFieldsBefore> before;
    for (std::string& field : before) fields >> field;
    if (before[2].find("myself") == std::string::npos) continue;
    std::string slots;
    for (std::string each; fields >> each;) slots += each + " ";
    return slots;
  }
  return {};
}

}  // namespace

PurgeOutcome RedisPageStore::purge_behind(std::span<const NamespaceFamily> namespaces,
                                          std::int64_t pages_before, std::int64_t deadline_us) {
  const LaneUse use(writer_);
  deadline_us = limited(deadline_us);
  PurgeOutcome outcome;
  bool outlasted = false;
  outcome.status = begin_purge(namespaces, pages_before, deadline_us)
                       ? outlast_given_up(outlasted, deadline_us)
                       : Status(purge_error(deadline_us));
  if (!outcome.status.ok()) outcome.advanced = outlasted;
  while (outcome.status.ok() && purge_or_none_->servers_left > 0) {
    outcome.status = purge_piece(deadline_us, outcome.pages);
    outcome.advanced |= outcome.status.ok();
  }
  if (outcome.status.ok()) {
    outcome.status = confirm_purge(deadline_us, outcome.advanced);
    outcome.advanced &= purge_or_none_.has_value();  // else there is nothing to go on from
  }
  count(pages_.purged, outcome.pages);
  if (!outcome.status.ok()) count(pages_.purge_failed);
  return outcome;
}

// A call goes on where the last one for the same pages ended, unless another server has taken
// the place of one since: that one may not come back. False if nobody says which servers there are.
bool RedisPageStore::begin_purge(std::span<const NamespaceFamily> namespaces,
                                 std::int64_t pages_before, std::int64_t deadline_us) {
  std::vector<RedisEndpoint> servers = writer_.servers.ask_primaries(deadline_us);
  if (servers.empty()) return false;
  const std::int64_t map_changes = writer_.servers.map_changes();
  const bool goes_on = purge_or_none_.has_value() && purge_or_none_->map_changes == map_changes &&
                       purge_or_none_->pages_before == pages_before &&
                       std::ranges::equal(purge_or_none_->namespaces, namespaces);
  if (goes_on) return true;
  std::vector<std::string> slots = ask_slots(servers, deadline_us);
  if (writer_.servers.is_cluster() && slots.empty()) return false;
  purge_or_none_ = Purge();
  purge_or_none_->slots = std::move(slots);
  purge_or_none_->namespaces.assign(namespaces.begin(), namespaces.end());
  purge_or_none_->pages_before = pages_before;
  purge_or_none_->servers_left = servers.size();
  purge_or_none_->lives.resize(servers.size());
  purge_or_none_->servers = std::move(servers);
  purge_or_none_->map_changes = map_changes;
  return true;
}

// What is carried out behind a scan would stay.
Status RedisPageStore::outlast_given_up(bool& advanced, std::int64_t deadline_us) {
  for (const RedisEndpoint& server : purge_or_none_->servers) {
    given_up_.add_of_before(server);
    const std::int64_t before = given_up_.rounds_left(server);
    const bool done = writer_.servers.outlast_given_up(server, deadline_us);
    advanced |= given_up_.rounds_left(server) < before;
    if (!done) return purge_error(deadline_us);
  }
  return {};
}

// When all servers have been scanned. Where replicas lag, a call that had time for no more than
// that leaves the scans to the next one; they are not kept for longer, while others store.
Status RedisPageStore::confirm_purge(std::int64_t deadline_us, bool scanned_now) {
  const bool follow = replicas_follow(writer_, purge_or_none_->servers, deadline_us);
  if (!follow && scanned_now) return purge_error(deadline_us);
  // Last: a replica that took a primary's place before it had all of it would be on the map.
  const bool is_done = follow && nothing_moved(deadline_us);
  purge_or_none_.reset();
  return is_done ? Status() : Status(purge_error(deadline_us));
}

bool RedisPageStore::replicas_follow(Lane& lane, std::span<const RedisEndpoint> servers,
                                     std::int64_t deadline_us) {
  return std::ranges::all_of(servers, [&](const RedisEndpoint& server) {
    return wait_for_replicas(lane.servers, server, clock_, deadline_us);
  });
}

// Which servers had the pages is not known by now: all are asked.
Status RedisPageStore::make_removals_last(std::int64_t deadline_us) {
  const LaneUse use(reader_);
  deadline_us = limited(deadline_us);
  // What is not found was not found by those that were known then.
  const std::int64_t map_changes = reader_.servers.map_changes();
  const auto servers = reader_.servers.ask_primaries(deadline_us);
  for (const RedisEndpoint& server : servers) {
    if (given_up_.rounds_left(server) == 0) continue;
    // It may come behind the reads that did not find it: they are to be made again.
    reader_.servers.outlast_given_up(server, deadline_us);
    return purge_error(deadline_us);
  }
  const bool all = !servers.empty() && replicas_follow(reader_, servers, deadline_us) &&
                   !reader_.servers.ask_primaries(deadline_us).empty();
  if (all && map_changes == reader_.servers.map_changes()) return {};
  return purge_error(deadline_us);
}

// Whether each server has had the same names from the begin of this purge to now.
bool RedisPageStore::nothing_moved(std::int64_t deadline_us) {
  const std::vector<RedisEndpoint> servers = writer_.servers.ask_primaries(deadline_us);
  if (servers.empty() || purge_or_none_->map_changes != writer_.servers.map_changes()) return false;
  if (!all_live_on(deadline_us)) return false;
  const std::vector<std::string> slots = ask_slots(servers, deadline_us);
  const bool moving = std::ranges::any_of(
      slots, [](const std::string& of_one) { return of_one.find('[') != std::string::npos; });
  return !moving && slots == purge_or_none_->slots;
}

// Whether none was started anew since it was first asked.
bool RedisPageStore::all_live_on(std::int64_t deadline_us) {
  const Purge& purge = *purge_or_none_;
  for (std::size_t i = 0; i < purge.servers.size(); ++i) {
    const auto state = ask_server_state(writer_.servers, purge.servers[i], deadline_us);
    if (!state || state->life != purge.lives[i]) return false;
  }
  return true;
}

// What each server of a cluster says of its own slots; nothing where one does not say, and where
// there is no cluster.
std::vector<std::string> RedisPageStore::ask_slots(std::span<const RedisEndpoint> servers,
                                                   std::int64_t deadline_us) {
  std::vector<std::string> slots;
  if (!writer_.servers.is_cluster()) return slots;
  for (const RedisEndpoint& server : servers) {
    RedisCommand nodes;
    nodes.words = {"CLUSTER", "NODES"};
    nodes.words_used = 2;
    nodes.expects = RedisExpects::kBulkOrNil;
    writer_.servers.run_at(server, {&nodes, 1}, deadline_us);
    slots.push_back(nodes.answered ? own_slots(nodes.reply) : "");
    if (slots.back().empty()) return {};
  }
  return slots;
}

Error RedisPageStore::purge_error(std::int64_t deadline_us) const {
  const bool is_late = clock_.now_us() >= deadline_us;
  return {is_late ? ErrorCode::kDeadline : ErrorCode::kIo, where_ + ": values may be left"};
}

// One piece of one server. The cursor moves on only when all of it is done.
Status RedisPageStore::purge_piece(std::int64_t deadline_us, std::int64_t& pages) {
  Purge& purge = *purge_or_none_;
  std::string cursor = purge.cursor;
  STEMMA_ASSIGN_OR_RETURN(std::vector<std::string> names, scan(cursor, deadline_us));
  const bool all = purge.namespaces.empty() && purge.pages_before == 0;
  if (!all) STEMMA_RETURN_IF_ERROR(keep_named(names, deadline_us));
  STEMMA_RETURN_IF_ERROR(unlink(names, deadline_us, pages));
  purge.cursor = std::move(cursor);
  if (purge.cursor == "0") --purge.servers_left;
  return {};
}

// Names of pages of ours, and no others: those of other secrets, and of descriptions, are longer. A
// cursor is worth nothing to another life of the server, which keeps its names in another order: so
// each answer comes with the life that gave it, on the same connection.
Result<std::vector<std::string>> RedisPageStore::scan(std::string& cursor,
                                                      std::int64_t deadline_us) {
  const std::string pattern = prefix_ + std::string(kKeyDigits, '?');
  Purge& purge = *purge_or_none_;
  const std::size_t at = purge.servers_left - 1;
  for (;;) {
    const std::string from = cursor;
    std::array<RedisCommand, 2> commands = {server_state_question()};
    RedisCommand& scan = commands[1];
    scan.words = {"SCAN", from, "MATCH", pattern, "COUNT", kNamesAtOnce};
    scan.words_used = 6;
    scan.expects = RedisExpects::kArrayOrNil;
    writer_.servers.run_at(purge.servers[at], commands, deadline_us);
    std::vector<std::string> names;
    const auto state = server_state(commands[0]);
    if (!state || !scan.answered || !take_scan(scan.reply, cursor, names)) {
      return purge_error(deadline_us);
    }
    const std::string before = std::exchange(purge.lives[at], state->life);
    if (from == "0" || purge.lives[at] == before) return names;
    cursor = purge.cursor = "0";
  }
}

// Of these names those whose values say that they are of the purge. What is no frame, or of
// another version, is nobody's to find here.
Status RedisPageStore::keep_named(std::vector<std::string>& names, std::int64_t deadline_us) {
  std::vector<std::array<std::byte, kNamespacePeekBytes>> begins(names.size());
  std::vector<RedisCommand> commands(names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    commands[i].words = {"GETRANGE", names[i], "0", kPeekEnd};
    commands[i].words_used = 4;
    commands[i].expects = RedisExpects::kBulkOrNil;
    commands[i].target.first = begins[i];
  }
  writer_.servers.run(commands, deadline_us);
  const Purge& purge = *purge_or_none_;
  std::vector<std::string> kept;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const bool wrong_type = is_answer(commands[i], RespKind::kError) &&
                            redis_error_kind(commands[i].reply.text) == RedisErrorKind::kWrongType;
    if (wrong_type) continue;
    if (!is_answer(commands[i], RespKind::kBulk)) return purge_error(deadline_us);
    if (peek_is_behind(begins[i], purge.namespaces, purge.pages_before))
      kept.push_back(std::move(names[i]));
  }
  names = std::move(kept);
  return {};
}

Status RedisPageStore::unlink(std::span<const std::string> names, std::int64_t deadline_us,
                              std::int64_t& pages) {
  std::vector<RedisCommand> commands(names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    commands[i].words = {"UNLINK", names[i]};
    commands[i].words_used = 2;
    commands[i].expects = RedisExpects::kInteger;
  }
  writer_.servers.run(commands, deadline_us);
  bool all = true;
  for (const RedisCommand& command : commands) {
    if (is_answer(command, RespKind::kInteger)) {
      pages += command.reply.number;
    } else {
      all = false;
    }
  }
  return all ? Status() : Status(purge_error(deadline_us));
}

}  // namespace stemma
