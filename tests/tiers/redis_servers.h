// RedisServers: one redis-server, or a cluster of three, for the tests of a suite.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/temp_directory.h"
#include "store/child_process.h"
#include "store/redis_process.h"

namespace stemma {

class RedisServers {
 public:
  // Server i listens at its socket and on 127.0.0.1. Ends the program where no server starts: there
  // is nothing to test then.
  explicit RedisServers(std::size_t nodes) {
    auto ports = free_ports(2 * nodes);
    STEMMA_CHECK(ports.ok(), "ports");
    ports_ = *ports;
    for (std::size_t i = 0; i < nodes; ++i) start(i, nodes > 1);
    if (nodes > 1) join();
  }

  // What --remote takes.
  std::string url() const {
    if (servers_.size() == 1) return "redis://" + authority(0);
    return "redis-cluster://" + authority(0) + "," + authority(1);
  }
  std::size_t nodes() const { return servers_.size(); }
  std::string cli(std::size_t i, std::vector<std::string> words) const {
    words.insert(words.begin(), {"redis-cli", "-p", std::to_string(ports_[i])});
    const auto printed = run_program(words, kLimitUs);
    return printed.ok() ? *printed : to_string(printed.error());
  }
  void flush() const {
    for (std::size_t i = 0; i < nodes(); ++i) {
      STEMMA_CHECK(cli(i, {"FLUSHALL"}) == "OK\n", "an idle server does as it is told");
    }
  }
  std::int64_t values(std::size_t i) const {
    return std::strtoll(cli(i, {"DBSIZE"}).c_str(), nullptr, 10);
  }
  void kill(std::size_t i) { servers_[i].process().kill(); }

 private:
  static constexpr std::int64_t kLimitUs = 30'000'000;

  std::string authority(std::size_t i) const { return "127.0.0.1:" + std::to_string(ports_[i]); }

  void start(std::size_t i, bool is_node) {
    const std::string name = "redis" + std::to_string(i);
    std::vector<std::string> options;
    if (is_node) {
      const std::uint16_t bus = ports_[ports_.size() / 2 + i];
      options = {"--cluster-enabled",
                 "yes",
                 "--cluster-config-file",
                 name + ".nodes",
                 "--cluster-port",
                 std::to_string(bus),
                 "--cluster-node-timeout",
                 "2000",
                 "--cluster-require-full-coverage",
                 "no"};
    }
    auto started = RedisProcess::start(
        {.directory = directory_.path(), .name = name, .port = ports_[i], .options = options});
    STEMMA_CHECK(started.ok(), "redis-server is installed (tools/install_packages)");
    servers_.push_back(std::move(started).value());
  }

  void join() {
    std::vector<std::string> words = {"redis-cli", "--cluster", "create"};
    for (std::size_t i = 0; i < nodes(); ++i) words.push_back(authority(i));
    words.insert(words.end(), {"--cluster-replicas", "0", "--cluster-yes"});
    const auto created = run_program(words, kLimitUs);
    STEMMA_CHECK(created.ok(), "a cluster");
    for (std::size_t i = 0; i < nodes(); ++i) {
      // Each node learns by itself that all slots are taken; a question a try, no waiting.
      int tries = 5000;
      while (cli(i, {"CLUSTER", "INFO"}).find("cluster_state:ok") == std::string::npos) {
        STEMMA_CHECK(--tries > 0, "a cluster of nodes that answer comes up");
      }
    }
  }

  TempDirectory directory_;
  std::vector<std::uint16_t> ports_;
  std::vector<RedisProcess> servers_;
};

}  // namespace stemma
