#include "store/redis_process.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/file.h"

namespace stemma {

namespace {

constexpr std::int64_t kStartUsMax = 30'000'000;

// A socket bound to a port that the system chose, and the port.
Result<std::pair<int, std::uint16_t>> bound_socket() {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size_bytes = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (descriptor < 0 || ::bind(descriptor, any, size_bytes) != 0 ||
      ::getsockname(descriptor, any, &size_bytes) != 0) {
    return Error{ErrorCode::kIo, "bind 127.0.0.1", errno};
  }
  return std::pair(descriptor, ntohs(address.sin_port));
}

}  // namespace

Result<RedisProcess> RedisProcess::start(const Options& options) {
  const std::string socket_path = join_path(options.directory, options.name + ".sock");
  std::vector<std::string> words = {"redis-server",
                                    "--port",
                                    std::to_string(options.port),
                                    "--bind",
                                    "127.0.0.1",
                                    "--unixsocket",
                                    socket_path,
                                    "--dir",
                                    options.directory,
                                    "--save",
                                    "",
                                    "--appendonly",
                                    "no",
                                    "--dbfilename",
                                    options.name + ".rdb"};
  words.insert(words.end(), options.options.begin(), options.options.end());
  STEMMA_ASSIGN_OR_RETURN(ChildProcess process, ChildProcess::start(words));
  // The port first, then the socket.
  STEMMA_RETURN_IF_ERROR(process.wait_for("ready to accept connections at", kStartUsMax));
  return RedisProcess(std::move(process), socket_path);
}

Result<std::vector<std::uint16_t>> free_ports(std::size_t ports) {
  std::vector<std::uint16_t> found;
  std::vector<int> held;  // until all are found, so that they differ
  Status status;
  while (found.size() < ports && status.ok()) {
    const auto bound = bound_socket();
    if (!bound.ok()) {
      status = bound.error();
      continue;
    }
    held.push_back(bound->first);
    found.push_back(bound->second);
  }
  for (const int descriptor : held) ::close(descriptor);
  STEMMA_RETURN_IF_ERROR(std::move(status));
  return found;
}

}  // namespace stemma
