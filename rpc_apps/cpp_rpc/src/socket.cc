#include "socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstring>
#include <memory>

namespace codl_server {

namespace {

constexpr double kParentCheck = 0.5;  // s; how long the server may outlive its parent process
constexpr int kBacklog = 256;

sigset_t Signals() {
  sigset_t set;
  sigemptyset(&set);
  for (int number : {SIGTERM, SIGINT, SIGHUP, SIGCHLD}) sigaddset(&set, number);
  return set;
}

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses Resolve(const std::string& host, int port, int flags) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = flags;
  addrinfo* first = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &first);
  if (error != 0) throw SocketError(host + ": " + gai_strerror(error));
  return Addresses(first, &freeaddrinfo);
}

std::string ToText(const sockaddr* address, socklen_t length) {
  char host[NI_MAXHOST], port[NI_MAXSERV];
  if (getnameinfo(address, length, host, sizeof(host), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "unknown";
  }
  return std::string(host) + ":" + port;
}

// After a send or recv that failed: waits for the socket, or throws SocketError for an error and after the deadline.
void WaitToRetry(Events* events, int fd, short what, Clock::time_point deadline, const char* late) {
  if (errno != EAGAIN && errno != EINTR) throw SocketError(std::strerror(errno));
  if (SecondsUntil(deadline) <= 0) throw SocketError(late);
  events->Wait(fd, what, SecondsUntil(deadline));
}

}  // namespace

double SecondsUntil(Clock::time_point when) { return std::chrono::duration<double>(when - Clock::now()).count(); }

void Fd::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

std::string Address::text() const {
  return (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + std::to_string(port);
}

std::string SystemError(const std::string& what) { return what + ": " + std::strerror(errno); }

Events::Events(int parent) : parent_(parent) {
  const sigset_t set = Signals();
  sigprocmask(SIG_BLOCK, &set, nullptr);
  signals_ = Fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_) throw std::runtime_error(SystemError("signalfd"));
}

void Events::Release() {
  signals_.Close();
  const sigset_t set = Signals();
  sigprocmask(SIG_UNBLOCK, &set, nullptr);
}

void Events::Wait(std::vector<pollfd>* sockets, double seconds) {
  const Clock::time_point deadline = In(std::min(seconds, 1e6));
  sockets->push_back({signals_.get(), POLLIN, 0});
  while (true) {
    if (parent_ != 0 && getppid() != parent_) throw Stop("the process that this phone belongs to has ended");
    const double left = std::max(0.0, SecondsUntil(deadline));
    const int ready =
        poll(sockets->data(), sockets->size(), static_cast<int>(std::ceil(1e3 * std::min(left, kParentCheck))));
    if (ready < 0 && errno != EINTR) throw std::runtime_error(SystemError("poll"));
    signalfd_siginfo info;
    bool child = false;
    while (read(signals_.get(), &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
      if (info.ssi_signo != SIGCHLD) throw Stop("asked to end");
      child = true;
    }
    if (ready > 0 || child || SecondsUntil(deadline) <= 0) break;
  }
  sockets->pop_back();
}

void Events::Wait(double seconds) {
  std::vector<pollfd> none;
  Wait(&none, seconds);
}

bool Events::Wait(int fd, short what, double seconds) {
  const Clock::time_point deadline = In(seconds);
  do {
    std::vector<pollfd> sockets{{fd, what, 0}};
    Wait(&sockets, std::max(0.0, SecondsUntil(deadline)));
    if (sockets[0].revents != 0) return true;
  } while (SecondsUntil(deadline) > 0);
  return false;
}

void Events::Sleep(double seconds) {
  const Clock::time_point deadline = In(seconds);
  while (SecondsUntil(deadline) > 0) Wait(SecondsUntil(deadline));
}

Fd Listen(const std::string& host, int port, int port_end) {
  std::string last = "no port to try";
  for (int candidate = port; candidate == port || (port != 0 && candidate < port_end); ++candidate) {
    const Addresses addresses = Resolve(host, candidate, AI_PASSIVE);
    Fd listener(socket(addresses->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int yes = 1;
    if (listener && setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) == 0 &&
        bind(listener.get(), addresses->ai_addr, addresses->ai_addrlen) == 0 && listen(listener.get(), kBacklog) == 0) {
      return listener;
    }
    last = std::strerror(errno);
  }
  throw SocketError("cannot listen on " + host + ", ports " + std::to_string(port) + " to " + std::to_string(port_end) +
                    ": " + last);
}

uint16_t PortOf(int listener) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

std::string PeerOf(int connection) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (getpeername(connection, reinterpret_cast<sockaddr*>(&address), &length) != 0) return "unknown";
  return ToText(reinterpret_cast<sockaddr*>(&address), length);
}

Fd Dial(Events* events, const Address& where, double seconds) {
  const Clock::time_point deadline = In(seconds);
  const Addresses addresses = Resolve(where.host, where.port, 0);
  std::string last = "no address";
  for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
    Fd conn(socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!conn) continue;
    int error = connect(conn.get(), address->ai_addr, address->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      error = ETIMEDOUT;
      if (events->Wait(conn.get(), POLLOUT, SecondsUntil(deadline))) {
        socklen_t length = sizeof(error);
        getsockopt(conn.get(), SOL_SOCKET, SO_ERROR, &error, &length);
      }
    }
    if (error == 0) {
      SendAtOnce(conn.get());
      KeepAlive(conn.get());
      return conn;
    }
    last = std::strerror(error);
  }
  throw SocketError(last);
}

void SendAll(Events* events, int fd, std::string_view bytes, double seconds) {
  const Clock::time_point deadline = In(seconds);
  while (!bytes.empty()) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else {
      WaitToRetry(events, fd, POLLOUT, deadline, "the peer takes nothing");
    }
  }
}

std::string ReadExactly(Events* events, int fd, size_t size, double seconds) {
  const Clock::time_point deadline = In(seconds);
  std::string bytes;
  char part[4096];
  while (bytes.size() < size) {
    const ssize_t got = recv(fd, part, std::min(sizeof(part), size - bytes.size()), MSG_DONTWAIT);
    if (got > 0) {
      bytes.append(part, static_cast<size_t>(got));
    } else if (got == 0) {
      throw SocketError("the peer closed the connection");
    } else {
      WaitToRetry(events, fd, POLLIN, deadline, "the peer says nothing");
    }
  }
  return bytes;
}

void SendAtOnce(int fd) {
  const int yes = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

void KeepAlive(int fd) {
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof(yes));
  constexpr std::pair<int, int> kOptions[] = {{TCP_KEEPIDLE, 60}, {TCP_KEEPINTVL, 15}, {TCP_KEEPCNT, 4}};
  for (const auto& [option, value] : kOptions) setsockopt(fd, IPPROTO_TCP, option, &value, sizeof(value));
}

}  // namespace codl_server
