// EmbeddedEngine: an engine that uses Stemma through the C ABI, and through KvCache where that has
// more, in any order that the headers allow, beside a model of what they promise: which texts were
// published, and which row of K and V each token has. Every token that a sequence holds, computed
// or found, must lie in its slot byte for byte; nothing is found that was not published in that
// namespace, or was purged since; what is no success changes nothing.
//
// Thread:     tests.
// Memory:     the model's, without a bound.
// Cost:       checks read every row of every sequence that is held.
// Not here:   which calls, in which order (random_calls_test).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/prng.h"
#include "base/temp_directory.h"
#include "bindings/c_handles.h"
#include "embed/embedded_plan.h"
#include "embed/row_ledger.h"
#include "embed/wild_store.h"
#include "prefix/event_mirror.h"

namespace stemma {

class EmbeddedEngine {
 public:
  explicit EmbeddedEngine(std::uint64_t seed);
  ~EmbeddedEngine();
  EmbeddedEngine(const EmbeddedEngine&) = delete;
  EmbeddedEngine& operator=(const EmbeddedEngine&) = delete;

  // One random call, or what belongs together.
  void call();
  // What must hold after every call.
  void check();
  // Everything is closed, and opened anew: what lower tiers keep is there.
  void begin_anew();

  const EmbeddedPlan& plan() const { return plan_; }
  // How often what happened.
  const std::map<std::string, std::int64_t>& tally() const { return tally_; }

 private:
  struct Live {
    stemma_sequence* handle = nullptr;
    std::size_t known = 0;             // its namespace, in the plan
    Text tokens;                       // its prompt, then what it has computed beyond
    std::vector<std::uint64_t> names;  // of each token's rows
    std::int64_t computed = 0;
    std::int64_t lent = 0;  // of `computed`, tokens on loan; 0: none
    bool waits = false;     // what it has on loan is not whole
    bool publishes = true;
    std::uint64_t root = 0;      // of its text, when it began
    std::uint64_t own_root = 0;  // of what goes on from a shared beginning

    std::int64_t size() const { return static_cast<std::int64_t>(tokens.size()); }
  };

  // Opening and closing.
  void open();
  void close();
  void open_tiers();
  std::vector<stemma_store*> open_stores();

  // Calls.
  void open_namespace();
  void close_namespace();
  void begin();
  void begin_with(std::size_t at, const Text& tokens);
  void compute();
  void commit();
  void finish();
  void release();
  void fork();
  void advance();
  void adopt();
  void quarantine();
  void prefetch();
  void ask_in_cpp();
  void evict();
  void purge();
  void look_everywhere();
  void want();
  void say_something();
  void begin_step();
  void retire_step();
  void poll();
  void promote();
  void promote_with(std::size_t at, const Text& tokens);
  void release_promotion();
  void settle();
  void lend();
  void end_loans();
  void drain_events();
  void tell_batch();
  void ask_wrongly();
  std::vector<std::pair<stemma_status, stemma_status>> wrong_calls_of_cache();
  std::vector<std::pair<stemma_status, stemma_status>> calls_out_of_time();
  std::vector<std::pair<stemma_status, stemma_status>> wrong_calls_of(Live& live);
  std::vector<std::pair<stemma_status, stemma_status>> wrong_calls_of_pool();

  // The model.
  Text random_text(const KnownNamespace& known);
  std::optional<std::size_t> any_open();
  void try_open(std::size_t at);
  bool names_are_short() const { return plan_.namespaces_max < std::ssize(names_) + 2; }
  void take_few_names();
  std::uint64_t root_of(const Digest& digest) const;
  std::uint64_t own_root_of(const KnownNamespace& known) const;
  std::uint64_t base_name(const Live& live, std::int32_t token) const;
  void append(Live& live, std::int32_t token) const;
  void note_published(const Live& live, std::int64_t tokens);
  std::int64_t published_of(const std::vector<std::uint64_t>& names, std::int64_t tokens_max) const;
  Live* any_live();
  Live* any_unlent();
  std::int64_t slot(const Live& live, std::int64_t position) const;
  std::vector<std::int32_t> windowed_row(const Live& live, std::int64_t first_token) const;
  void check_rows(const Live& live);
  void check_window(const Live& live);
  void check_steps();
  void check_stats();
  stemma_layer view(stemma_pool* pool, std::int64_t layer) const;
  std::string fingerprint() const;
  void store_rows(Live& live, std::int64_t end);
  void copy_page(stemma_pool* pool, RowLedger& ledger, const Live& live, std::int64_t from,
                 std::int64_t to, std::uint64_t salt);
  stemma_stats stats() const;
  bool lending() const { return lending_; }

  static constexpr std::uint64_t kWindowedSalt = 0x57;  // in the names of windowed rows

  Prng prng_;
  EmbeddedPlan plan_;
  TempDirectory directory_;
  RowLedger ledger_;
  std::unique_ptr<RowLedger> windowed_ledger_;
  WildStore near_;
  WildStore far_;
  std::int64_t disk_number_ = 0;

  stemma_pool* pool_ = nullptr;
  stemma_pool* windowed_pool_ = nullptr;
  stemma_tiers* tiers_ = nullptr;
  stemma_cache* cache_ = nullptr;
  std::vector<std::vector<std::int32_t>> names_;  // by known namespace: each time it is open
  std::vector<std::unique_ptr<Live>> live_;
  std::vector<std::int64_t> promotions_;
  std::vector<Live*> lent_;
  bool lending_ = false;  // since the first of them, whoever let go meanwhile
  // Slots that a step in flight reads, and what is in them.
  struct Step {
    std::int64_t number;
    std::vector<std::pair<std::int64_t, std::string>> rows;
  };
  std::vector<Step> steps_;
  std::map<Family, std::uint64_t> purges_;
  std::map<std::uint64_t, std::uint64_t> wrong_;  // how often, by the name of a page's last token
  std::map<std::size_t, std::uint64_t> wrong_begins_;  // the same of shared beginnings
  bool purge_unconfirmed_ = false;
  std::set<std::uint64_t> published_;
  std::unique_ptr<EventMirror> mirror_ = std::make_unique<EventMirror>();
  std::int64_t last_evicted_ = 0;
  std::int64_t turn_ = 0;
  std::map<std::string, std::int64_t> tally_;
};

}  // namespace stemma
