#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

#include "listener.h"
#include "log.h"

namespace codl_server {

namespace {

// A pending connection costs a socket and at most a kilobyte.  Any more wait in the kernel's queue.
constexpr size_t kMostPending = 32;
constexpr double kHandshakeTimeout = 5.0;  // s
constexpr double kCrowdedTimeout = 1.0;    // s, while others wait in the queue
constexpr double kRetry = 1.0;             // s between attempts to connect to the tracker
constexpr double kCheck = 2.0;             // s between queries to it
constexpr double kUnused = 8.0;            // s after which a key that a client took and never used is replaced

std::string RandomKey(const std::string& key) {
  std::random_device random;
  return key + ":" + std::to_string(random()) + std::to_string(random());
}

}  // namespace

PortListener::PortListener(Fd socket, std::string key, std::optional<TrackerClient> tracker)
    : socket_(std::move(socket)), key_(std::move(key)), match_key_(key_), tracker_(std::move(tracker)) {}

void PortListener::Close() {
  socket_.Close();
  pending_.clear();
  if (tracker_) tracker_->Close();
}

Client PortListener::Next(Events* events) {
  offered_ = false;
  // Nobody read these connections while a session ran.
  for (Pending& pending : pending_) pending.since = Clock::now();
  while (true) {
    if (tracker_ && !offered_) OfferKey(events);
    std::vector<pollfd> sockets;
    for (const Pending& pending : pending_) sockets.push_back({pending.conn.get(), POLLIN, 0});
    const size_t count = sockets.size();
    if (count < kMostPending) sockets.push_back({socket_.get(), POLLIN, 0});
    events->Wait(&sockets, WaitTime());
    for (size_t i = 0; i < count; ++i) {
      if (sockets[i].revents == 0) continue;
      Pending& pending = pending_[i];
      try {
        if (std::optional<Client> client = Read(&pending)) {
          pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
          return std::move(*client);
        }
      } catch (const std::runtime_error& error) {
        Log("refused " + pending.peer + ": " + error.what());
        pending.conn.Close();
      }
    }
    DropSlow();
    if (count < kMostPending && sockets[count].revents != 0) Accept();
    if (tracker_ && offered_ && SecondsUntil(next_check_) <= 0) CheckKeyTaken(events);
  }
}

double PortListener::WaitTime() const {
  double seconds = kCheck;
  const bool full = pending_.size() >= kMostPending;
  for (const Pending& pending : pending_) {
    seconds = std::min(seconds, SecondsUntil(pending.since) + (full ? kCrowdedTimeout : kHandshakeTimeout));
  }
  return std::max(seconds, 0.05);
}

void PortListener::OfferKey(Events* events) {
  match_key_ = RandomKey(key_);
  taken_ = 0;
  while (!tracker_->Offer(events, match_key_)) events->Sleep(kRetry);
  offered_ = true;
  next_check_ = In(kCheck);
}

void PortListener::CheckKeyTaken(Events* events) {
  next_check_ = In(kCheck);
  switch (tracker_->Query(events, match_key_)) {
    case TrackerClient::Key::kWaiting:
      taken_ = 0;
      break;
    case TrackerClient::Key::kTaken:
      // If its client does not connect soon, it has gone, and others need a key.
      taken_ += kCheck;
      offered_ = taken_ < kUnused;
      break;
    case TrackerClient::Key::kLost:
      offered_ = false;
  }
}

void PortListener::Accept() {
  while (pending_.size() < kMostPending) {
    Pending pending;
    pending.conn = Fd(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!pending.conn) {
      if (errno != EAGAIN && errno != ECONNABORTED && errno != EINTR) Log(SystemError("accept"));
      return;
    }
    pending.peer = PeerOf(pending.conn.get());
    SendAtOnce(pending.conn.get());
    pending_.push_back(std::move(pending));
  }
}

void PortListener::DropSlow() {
  bool crowded = false;
  if (pending_.size() >= kMostPending) {
    pollfd waiting{socket_.get(), POLLIN, 0};
    crowded = poll(&waiting, 1, 0) > 0;
  }
  const Clock::time_point late = In(-(crowded ? kCrowdedTimeout : kHandshakeTimeout));
  for (Pending& pending : pending_) {
    if (pending.conn && pending.since < late) {
      Log("refused " + pending.peer + ": half a handshake, then nothing");
      pending.conn.Close();
    }
  }
  const auto closed = [](const Pending& pending) { return !pending.conn; };
  pending_.erase(std::remove_if(pending_.begin(), pending_.end(), closed), pending_.end());
}

std::optional<Client> PortListener::Read(Pending* pending) {
  char part[kLongestText];
  while (const size_t wanted = pending->handshake.wanted()) {
    const ssize_t got = recv(pending->conn.get(), part, wanted, MSG_DONTWAIT);
    if (got == 0) throw Refused("the peer closed the connection");
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
    if (got < 0) throw Refused(std::strerror(errno));
    pending->handshake.Take({part, static_cast<size_t>(got)});
  }
  return Answer(pending);
}

Client PortListener::Answer(Pending* pending) {
  const int fd = pending->conn.get();
  // A new connection's buffer has room for this, so anything but an immediate send is an error.
  const auto send_now = [fd](const std::string& words) {
    if (send(fd, words.data(), words.size(), MSG_NOSIGNAL | MSG_DONTWAIT) != static_cast<ssize_t>(words.size())) {
      throw Refused("the peer takes no answer");
    }
  };
  const std::string& words = pending->handshake.text();
  try {
    CheckKey(words, match_key_);
  } catch (const Refused&) {
    send_now(Number(kMismatch));
    throw;
  }
  Client client;
  client.limit = TimeLimit(words);
  send_now(Number(kMagic) + Text("server:" + key_));
  client.conn = std::move(pending->conn);
  client.peer = pending->peer;
  return client;
}

}  // namespace codl_server
