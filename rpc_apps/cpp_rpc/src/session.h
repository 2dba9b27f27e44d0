// A client's session, in a process of its own: what it does wrong is its own end, and not the server's.
#ifndef TVM_CODL_SERVER_SESSION_H_
#define TVM_CODL_SERVER_SESSION_H_

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "front.h"
#include "packets.h"

namespace codl_server {

struct Limits {
  uint64_t packet_bytes = UsualPacket();  // the longest packet of a session
  double session_s = 0;                   // the longest session; 0: as long as its client names, or for ever
  uint64_t memory_bytes = 0;              // of data that a session may hold (RLIMIT_DATA); 0: no limit
};

// What the session's process does with the connection; it has `folder` as its working directory.
using Work = std::function<void(int conn, const std::filesystem::path& folder, const Limits& limits)>;

// Runs one session to its end and returns in words how it ended.  `folder` is made for it and removed afterwards.
// Nothing of the session's process group is left, also where a Stop is thrown; what the kernel itself cannot end,
// inside a driver, is logged.
std::string RunSession(Events* events, Front* front, const Client& client, const std::filesystem::path& folder,
                       const Limits& limits, const Work& work);

// Removes the folders of servers that were killed outright.
void RemoveStale(const std::filesystem::path& parent);

}  // namespace codl_server

#endif  // TVM_CODL_SERVER_SESSION_H_
