#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "front.h"
#include "log.h"

namespace codl_server {

namespace {

constexpr double kPatience = 5.0;  // s for the rest of an answer that has begun
constexpr double kRetry = 1.0;     // s between attempts to reach the proxy
constexpr double kLook = 60.0;

}  // namespace

Client Proxied::Next(Events* events) {
  while (true) {
    std::string complaint;
    try {
      Client client = Through(events);
      complaint_.clear();
      return client;
    } catch (const SocketError& error) {
      complaint = error.what();
    } catch (const Refused& error) {
      complaint = error.what();
    }
    if (complaint != complaint_) Say("proxy " + proxy_.text() + ": " + complaint + "; trying again");
    complaint_ = complaint;
    events->Sleep(kRetry);
  }
}

Client Proxied::Through(Events* events) {
  Client client;
  client.conn = Dial(events, proxy_, kPatience);
  const int fd = client.conn.get();
  NoticeSilence(fd);
  SendAll(events, fd, Number(kMagic) + Text("server:" + key_), kPatience);
  // The proxy answers when a client with this key comes, be it tomorrow.
  while (!events->Wait(fd, POLLIN, kLook)) continue;
  Opening opening(Speaker::kProxy);
  const Clock::time_point deadline = In(kPatience);
  while (opening.wanted() != 0) {
    opening.Take(ReadExactly(events, fd, opening.wanted(), SecondsUntil(deadline)));
  }
  client.limit = TimeLimit(opening.text());
  client.peer = proxy_.text() + " (proxy)";
  return client;
}

}  // namespace codl_server
