// A client's session in a process of its own, so that its crash does not end the server.
#ifndef TVM_CODL_SERVER_SESSION_H_
#define TVM_CODL_SERVER_SESSION_H_

#include <cstdint>
#include <filesystem>
#include <string>

#include "listener.h"
#include "packets.h"

namespace codl_server {

struct Limits {
  uint64_t packet_bytes = DefaultPacketLimit();  // the longest packet of a session
  double session_s = 0;                          // the longest session; 0: the client's limit, if any
  uint64_t memory_bytes = 0;                     // a session's data (RLIMIT_DATA); 0: no limit
};

// Runs one session to its end in `folder`, which it makes and removes, and returns in words how it ended.  Kills the
// session's process group at the end, also when Stop is thrown; a process that a driver holds in the kernel is logged.
std::string RunSession(Events* events, Listener* listener, const Client& client, const std::filesystem::path& folder,
                       const Limits& limits);

// Removes the folders of servers that were killed.
void RemoveStale(const std::filesystem::path& parent);

}  // namespace codl_server

#endif  // TVM_CODL_SERVER_SESSION_H_
