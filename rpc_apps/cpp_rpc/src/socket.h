// Sockets owned by a scope, and waits that signals interrupt.
#ifndef TVM_CODL_SERVER_SOCKET_H_
#define TVM_CODL_SERVER_SOCKET_H_

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "handshake.h"

namespace codl_server {

using Clock = std::chrono::steady_clock;

inline Clock::time_point In(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}
double SecondsUntil(Clock::time_point when);

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  ~Fd() { Close(); }
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      Close();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void Close();

 private:
  int fd_;
};

struct Address {
  std::string host;
  uint16_t port = 0;
  std::string text() const;  // host:port, [host]:port for IPv6
};

// A signal asked the server to end, or its parent process has ended.
class Stop : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The connection failed, was closed, or took too long.
class SocketError : public PeerError {
  using PeerError::PeerError;
};

// Waits for sockets and signals at once.
class Events {
 public:
  // Blocks SIGTERM, SIGINT, SIGHUP and SIGCHLD, which only Wait then receives.  With `parent` (0: none), Wait also
  // stops when that process has ended.
  explicit Events(int parent);
  // Until one of the sockets is ready (see poll's fields), a child ends or the time is over.  Throws Stop.
  void Wait(std::vector<pollfd>* sockets, double seconds);
  // Until a child ends or the time is over.
  void Wait(double seconds);
  // Whether the socket became ready in time.
  bool Wait(int fd, short what, double seconds);
  void Sleep(double seconds);
  // Restores normal signals, for a session's process.
  void Release();

 private:
  Fd signals_;
  int parent_;
};

// The first free port from `port` to before `port_end`; from port 0 the system picks.  Throws SocketError.
Fd Listen(const std::string& host, int port, int port_end);
uint16_t PortOf(int listener);
std::string PeerOf(int connection);

// A connection that notices when the peer's machine vanishes.  Throws SocketError without an answer in `seconds`.
Fd Dial(Events* events, const Address& where, double seconds);
void SendAll(Events* events, int fd, std::string_view bytes, double seconds);
std::string ReadExactly(Events* events, int fd, size_t size, double seconds);

// Small packets are not held back.
void SendAtOnce(int fd);
// TCP keepalive: ends the connection if the peer's machine has vanished.
void KeepAlive(int fd);

// `what`, and errno in words.
std::string SystemError(const std::string& what);

}  // namespace codl_server

#endif  // TVM_CODL_SERVER_SOCKET_H_
