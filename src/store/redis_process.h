// RedisProcess: a redis-server of our own, for tests and benchmarks: nothing is written to disk,
// nothing outside `directory` is touched, and it ends with its owner.
//
// Thread:     one thread, as ChildProcess.
// Memory:     the server's log.
// Cost:       some ten milliseconds until it answers.
// Not here:   what is said to it (redis_connection).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "stemma/result.h"
#include "store/child_process.h"

namespace stemma {

class RedisProcess {
 public:
  // Listens at `directory`/`name`.sock and, if `port` is not 0, on 127.0.0.1. `options` are
  // redis-server's, as on its command line. Answers when this returns. kNotFound: the package
  // redis-server is not installed, or the server ended (its words are in the error).
  struct Options {
    std::string directory;
    std::string name = "redis";
    std::uint16_t port = 0;
    std::vector<std::string> options = {};
  };
  static Result<RedisProcess> start(const Options& options);

  const std::string& socket_path() const noexcept { return socket_path_; }
  std::string unix_url() const { return "unix://" + socket_path_; }
  ChildProcess& process() noexcept { return process_; }

 private:
  RedisProcess(ChildProcess process, std::string socket_path)
      : process_(std::move(process)), socket_path_(std::move(socket_path)) {}

  ChildProcess process_;
  std::string socket_path_;
};

// Ports of 127.0.0.1 at which nobody listened a moment ago, no two the same.
Result<std::vector<std::uint16_t>> free_ports(std::size_t ports);

}  // namespace stemma
