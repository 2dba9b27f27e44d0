#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "listener.h"
#include "log.h"

namespace codl_server {

namespace {

constexpr double kTimeout = 5.0;  // s to connect, and for the rest of an answer that has begun
constexpr double kRetry = 1.0;    // s between attempts to connect
constexpr double kWait = 60.0;

}  // namespace

Client ProxyListener::Next(Events* events) {
  while (true) {
    try {
      Client client = ConnectAndWait(events);
      last_error_.clear();
      return client;
    } catch (const PeerError& error) {
      if (error.what() != last_error_) Log("proxy " + proxy_.text() + ": " + error.what() + "; trying again");
      last_error_ = error.what();
    }
    events->Sleep(kRetry);
  }
}

Client ProxyListener::ConnectAndWait(Events* events) {
  Client client;
  client.conn = Dial(events, proxy_, kTimeout);
  const int fd = client.conn.get();
  SendAll(events, fd, Number(kMagic) + Text("server:" + key_), kTimeout);
  // The proxy answers when a client with this key comes, however late.
  while (!events->Wait(fd, POLLIN, kWait)) continue;
  Handshake handshake(Peer::kProxy);
  const Clock::time_point deadline = In(kTimeout);
  while (handshake.wanted() != 0) {
    handshake.Take(ReadExactly(events, fd, handshake.wanted(), SecondsUntil(deadline)));
  }
  client.limit = TimeLimit(handshake.text());
  client.peer = proxy_.text() + " (proxy)";
  return client;
}

}  // namespace codl_server
