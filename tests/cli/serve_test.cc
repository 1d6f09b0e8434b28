// stemma serve: how signals end it, and with what it does not begin.
#include <fcntl.h>
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#include "base/temp_directory.h"
#include "cli/program.h"
#include "events/event_follower.h"
#include "events/event_wire.h"
#include "http/http_client.h"
#include "http/http_limits.h"
#include "http/raw_client.h"
#include "server/served_program.h"

namespace stemma {
namespace {

pid_t start_in_shell(const std::string& command, int log) {
  const pid_t process = fork();
  if (process != 0) return process;
  dup2(log, STDERR_FILENO);
  execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
  _exit(127);
}

TEST(Serve, AnEndIsTakenFromTheServerAlone) {
  ServedProgram server({});
  ASSERT_GT(server.port(), 0);
  server.send(SIGUSR1);  // by which the server tells itself that it has ended
  EXPECT_EQ(server.stop(), 0);
}

// How what this process starts meanwhile finds SIGHUP.
class HangUps {
 public:
  explicit HangUps(sighandler_t how) : before_(signal(SIGHUP, how)) {}
  ~HangUps() { signal(SIGHUP, before_); }
  HangUps(const HangUps&) = delete;
  HangUps& operator=(const HangUps&) = delete;

 private:
  sighandler_t before_;
};

bool takes_connections(std::uint16_t port) {
  return HttpClient::connect({"127.0.0.1", port}).ok();
}

// A terminal that closes says so, and its shell once more, which does not cut answers off.
TEST(Serve, ATerminalThatClosesEndsItInOrder) {
  const HangUps hang_ups(SIG_DFL);
  ServedProgram server({});
  RawClient client;
  ASSERT_TRUE(client.connect(server.port()));
  const std::string body =
      R"({"prompt":"Go on","max_tokens":1000,"ignore_eos":true,"stream":true})";
  client.send("POST /v1/completions HTTP/1.1\r\nHost: here\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  ASSERT_TRUE(client.read_until("\r\n\r\n").has_value());
  server.send(SIGHUP);
  while (takes_connections(server.port())) continue;
  server.send(SIGHUP);
  std::string last;
  while (const auto piece = client.read_piece()) last = *piece;
  EXPECT_THAT(last, testing::EndsWith("data: [DONE]\n\n"));
  EXPECT_EQ(server.stop(), 0);
}

TEST(Serve, UnderNohupItOutlivesItsTerminal) {
  const HangUps hang_ups(SIG_IGN);
  ServedProgram server({});
  server.send(SIGHUP);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(takes_connections(server.port()));
  EXPECT_EQ(server.stop(), 0);
}

// As where a shell's `stemma serve 2>&1 | head` has seen enough.
TEST(Serve, OutlivesTheReaderOfItsLog) {
  std::array<int, 2> log = {};
  ASSERT_EQ(pipe2(log.data(), O_CLOEXEC), 0);
  ServedProgram server({}, log[1]);
  close(log[0]);
  close(log[1]);
  ASSERT_GT(server.port(), 0);
  auto client = HttpClient::connect({"127.0.0.1", server.port()});
  ASSERT_TRUE(client.ok());
  for (int i = 0; i < 2; ++i) {  // each has its line in the log
    const auto answer = client->ask("GET", "/v1/models", "");
    ASSERT_TRUE(answer.ok()) << to_string(answer.error());
    EXPECT_EQ(answer->status, 200);
  }
  EXPECT_EQ(server.stop(), 0);
}

// Who looks at a server and at its disk sees which pages are whose, though one asks under two
// salts.
TEST(Serve, SaltsOfOneTenantAreToldApartInWhatIsListed) {
  const TempDirectory directory;
  ServedProgram server({"--kv-bytes", "2MiB", "--disk", directory.file("disk")});
  auto client = HttpClient::connect({"127.0.0.1", server.port()});
  ASSERT_TRUE(client.ok());
  for (const std::string salt : {"a", "b"}) {
    const std::string prompt = R"({"prompt":[5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21],)";
    const auto answer = client->ask("POST", "/v1/completions",
                                    prompt + R"("max_tokens":1,"cache_salt":")" + salt + R"("})");
    ASSERT_TRUE(answer.ok() && answer->status == 200);
  }
  const auto tree = client->ask("GET", "/v1/cache/tree", "");
  ASSERT_TRUE(tree.ok());
  const nlohmann::json listed = nlohmann::json::parse(tree->body);
  std::set<std::string> names;
  for (const auto& node : listed["nodes"]) names.insert(node["namespace"]);
  EXPECT_EQ(names.size(), 2U);
  ASSERT_EQ(server.stop(), 0);
  const std::string listing = run_stemma("inspect " + directory.file("disk")).out;
  for (const std::string& name : names)
    EXPECT_THAT(listing, testing::HasSubstr("\n" + name + "  1 "));
}

std::int64_t stored_in(const EventMessage& message) {
  const WireBatch batch = read_event_batch(message.bytes).value();
  return std::count_if(batch.events.begin(), batch.events.end(), [](const WireEvent& event) {
    return event.kind == WireEvent::Kind::kStored;
  });
}

// Whether it comes to so many events of stored pages, asked again and again.
bool replays_in_the_end(EventFollower& follower, std::int64_t stored_events) {
  constexpr int kRoundsMax = 10'000;
  for (int round = 0; round < kRoundsMax; ++round) {
    std::int64_t stored = 0;
    const auto count = [&](const EventMessage& message) { stored += stored_in(message); };
    if (follower.replay(0, count).ok() && stored == stored_events) return true;
  }
  return false;
}

// Batches of events have the tokens of what is cached, and wait for who asks for them again.
TEST(Serve, WhatWasPurgedIsNotInTheEventsThatAreReplayed) {
  const TempDirectory directory;
  const std::string publish = "ipc://" + directory.file("publish");
  const std::string replay = "ipc://" + directory.file("replay");
  ServedProgram server({"--kv-bytes", "2MiB", "--events", publish, "--events-replay", replay});
  auto client = HttpClient::connect({"127.0.0.1", server.port()});
  auto follower =
      EventFollower::open({.endpoint = publish, .replay_endpoint = replay, .topic = ""});
  ASSERT_TRUE(client.ok() && follower.ok());
  const std::string prompt = R"({"prompt":[5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21],)";
  const auto answer = client->ask("POST", "/v1/completions", prompt + R"("max_tokens":1})");
  ASSERT_TRUE(answer.ok() && answer->status == 200);
  EXPECT_TRUE(replays_in_the_end(**follower, 1));
  const auto purged = client->ask("DELETE", "/v1/cache", "");
  ASSERT_TRUE(purged.ok() && purged->status == 200);
  std::int64_t stored = 0;
  const auto count = [&](const EventMessage& message) { stored += stored_in(message); };
  ASSERT_TRUE((*follower)->replay(0, count).ok());
  EXPECT_EQ(stored, 0) << "the answer came behind the events";
}

// As under `ulimit -f`, or LimitFSIZE= of systemd.
TEST(Serve, AFileThatMayNotGrowIsLikeAFullDisk) {
  const TempDirectory directory;
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small = {4096, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  ServedProgram server({"--host-bytes", "8MiB", "--host-file", directory.file("host"),
                        "--write-policy", "write-through"});
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  auto client = HttpClient::connect({"127.0.0.1", server.port()});
  ASSERT_TRUE(client.ok());
  const std::string prompt = R"({"prompt":[5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21],)";
  const auto answer = client->ask("POST", "/v1/completions", prompt + R"("max_tokens":1})");
  ASSERT_TRUE(answer.ok() && answer->status == 200);
  EXPECT_EQ(server.stop(), 0);
}

// Loading a model may take minutes. Here it is a prefix to share, whose one long word takes the
// tokenizer many seconds; the line in the log says that it has begun.
TEST(Serve, ASignalEndsItWhileItLoads) {
  const TempDirectory directory;
  std::ofstream prefixes(directory.file("prefixes"));
  std::minstd_rand letters(1);
  prefixes << R"({"prompt":")";
  for (int i = 0; i < (15 << 20); ++i) prefixes << static_cast<char>('a' + letters() % 26);
  prefixes << R"("})" << std::endl;
  std::array<int, 2> log = {};
  ASSERT_EQ(pipe2(log.data(), O_CLOEXEC), 0);
  const std::string command = "exec " STEMMA_BINARY_DIR "/stemma serve --port 0 --disk " +
                              directory.file("disk") + " --shared-prefixes " +
                              directory.file("prefixes");
  const pid_t process = start_in_shell(command, log[1]);
  close(log[1]);
  char first = 0;
  ASSERT_EQ(read(log[0], &first, 1), 1);
  kill(process, SIGTERM);
  int status = 0;
  ASSERT_EQ(waitpid(process, &status, 0), process);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) << status;
  close(log[0]);
}

TEST(Serve, AModelIsCalledAsItsDirectoryHoweverThatIsNamed) {
  const std::string model = std::string(STEMMA_SOURCE_DIR) + "/models/scribe-3m";
  for (const char* const more : {"", "/", "/.", "/../scribe-3m//./"}) {
    ServedProgram server({"--model", model + more});
    auto client = HttpClient::connect({"127.0.0.1", server.port()});
    ASSERT_TRUE(client.ok()) << more;
    const auto models = client->ask("GET", "/v1/models", "");
    ASSERT_TRUE(models.ok()) << more;
    EXPECT_THAT(models->body, testing::HasSubstr("\"scribe-3m\"")) << more;
  }
}

// By itself nginx takes 1 MiB.
TEST(Serve, TheProxyOfTheDocsTakesBodiesAsLongAsTheServer) {
  std::ifstream file(std::string(STEMMA_SOURCE_DIR) + "/docs/SERVING.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  const std::int64_t mib = HttpLimits().body_bytes_max >> 20;
  EXPECT_THAT(page, testing::HasSubstr("\n  client_max_body_size " + std::to_string(mib) + "m;\n"));
}

// What a crash leaves on a disk depends on it.
TEST(Serve, HelpSaysWhenEachWritePolicyCopies) {
  for (const char* const command : {"serve --help", "generate --help", "replay --help"}) {
    const ProgramRun run = run_stemma(command);
    EXPECT_EQ(run.exit_code, 0);
    std::string help;  // in one line, however it is broken
    for (std::istringstream words(run.out.substr(run.out.find("--write-policy"))); words;) {
      std::string word;
      words >> word;
      help += word + " ";
    }
    for (const char* const said : {"write-through as soon as they are computed",
                                   "write-through-selective once they were used",
                                   "write-back before they leave the device, with --disk"}) {
      EXPECT_THAT(help, testing::HasSubstr(said)) << command;
    }
  }
}

// What somebody typed for a reason never means the same as nothing.
TEST(Serve, NoFlagIsPassedOver) {
  const std::string license = std::string(STEMMA_SOURCE_DIR) + "/LICENSE";
  const std::pair<std::string, std::string> cases[] = {
      {"--api-keys ''", "--api-keys: is empty"},
      {"--api-keys=", "--api-keys: is empty"},
      {"--api-keys= --deterministic", "--api-keys: is empty"},
      {"--model ''", "--model: is empty"},
      {"--shared-prefixes ''", "--shared-prefixes: is empty"},
      {"--events ''", "--events: is empty"},
      {"--remote redis://127.0.0.1:1 --remote-secret ''", "--remote-secret: is empty"},
      {"--remote-secret " + license, "--remote-secret requires --remote"},
      {"--disk-bytes 1GiB", "--disk-bytes requires --disk"},
      {"--events-form maps", "--events-form requires --events"},
      {"--host-bytes 4MiB --tier-codec foo", "--tier-codec must be plain, int8 or int4 (got foo)"},
      {"--host-bytes 4MiB --host-layout foo", "--host-layout: "},
      {"--tier-codec int8", "--tier-codec needs --host-bytes, --disk or --remote"},
      {"--write-policy write-through", "--write-policy needs --host-bytes, --disk or --remote"},
      {"--host-layout layer_first", "--host-layout needs --host-bytes, --disk or --remote"},
      {"--load-wait-ms 5", "--load-wait-ms needs --host-bytes, --disk or --remote"},
      {"--host-bytes 0MiB --selective-uses 3",
       "--selective-uses needs --host-bytes, --disk or --remote"},
      {"--cache none --shadow-audit 5", "--shadow-audit needs --cache radix"},
      {"--windowed-share 2", "--windowed-share must be from 0.01 to 1 (got 2)"},
      {"--windowed-share 0.001", "--windowed-share must be from 0.01 to 1 (got 0.001)"},
      {"--host-bytes 4MiB --write-policy foo", "--write-policy: write policy 'foo' is unknown"},
      {"--host-bytes 4MiB --selective-uses 0", "--selective-uses: selective_uses must be at least"},
      {"--host-bytes 4MiB --cache none", "--cache: lower tiers need the cache \"radix\""},
      {"--remote redis://127.0.0.1:1 --remote-secret /nonexistent",
       "--remote-secret: /nonexistent"},
      {"--events foo", "--events: foo: no address such as tcp://HOST:PORT"},
      {"--events tcp://127.0.0.1:99999", "--events: tcp://127.0.0.1:99999: its port must be"},
      {"--adapters-from /nonexistent", "--adapters-from: /nonexistent is no directory"},
      {"--adapters-from " + license, "--adapters-from: " + license + " is no directory"},
      {"--drain-s nan", "--drain-s: nan is no finite number"},
      {"--host-bytes 16MiB --host-file /tmp/none --purge-file /tmp/./none",
       "--purge-file: /tmp/./none is the file of --host-file"},
      {"--host-bytes 16MiB --host-file " + license + " --api-keys " + license,
       "--host-file: " + license + " is the file of --api-keys"},
      {"--host here", "--host: here: not an address to listen on"},
      {"--allowed-origins here", "--allowed-origins: here: no origin"},
      {"--api-keys /nonexistent", "--api-keys: /nonexistent: cannot open"},
      {"--shared-prefixes /nonexistent", "--shared-prefixes: /nonexistent: cannot open"}};
  for (const auto& [flags, line] : cases) {
    const ProgramRun run = run_stemma("serve --port 0 " + flags, "timeout 60");
    EXPECT_EQ(run.exit_code, 2) << flags << ": " << run.err;
    EXPECT_THAT(run.err, testing::HasSubstr(line)) << flags;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  }
}

}  // namespace
}  // namespace stemma
