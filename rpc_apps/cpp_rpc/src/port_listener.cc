#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

#include "front.h"
#include "log.h"

namespace codl_server {

namespace {

// Each stranger costs a socket and at most a kilobyte.  A connection beyond these waits in the listener's queue.
constexpr size_t kMostStrangers = 32;
constexpr double kPatience = 5.0;         // s for a handshake,
constexpr double kCrowdedPatience = 1.0;  // and while others wait in the queue
constexpr double kRetry = 1.0;            // s between attempts to reach the tracker
constexpr double kLook = 2.0;             // s between questions to it
constexpr double kUnused = 8.0;           // s after which a key that a client took but never used is replaced

std::string RandomKey(const std::string& key) {
  std::random_device random;
  return key + ":" + std::to_string(random()) + std::to_string(random());
}

}  // namespace

Listening::Listening(Fd listener, std::string key, std::optional<TrackerLink> tracker)
    : listener_(std::move(listener)), key_(std::move(key)), match_key_(key_), tracker_(std::move(tracker)) {}

void Listening::Close() {
  listener_.Close();
  strangers_.clear();
  if (tracker_) tracker_->Close();
}

Client Listening::Next(Events* events) {
  offered_ = false;
  // Who came while a session ran has not been listened to.
  for (const auto& stranger : strangers_) stranger->since = Clock::now();
  while (true) {
    if (tracker_ && !offered_) OfferAKey(events);
    std::vector<pollfd> sockets;
    for (const auto& stranger : strangers_) sockets.push_back({stranger->conn.get(), POLLIN, 0});
    const size_t known = sockets.size();
    if (known < kMostStrangers) sockets.push_back({listener_.get(), POLLIN, 0});
    events->Wait(&sockets, Nap());
    for (size_t i = 0; i < known; ++i) {
      if (sockets[i].revents == 0) continue;
      std::unique_ptr<Stranger>& stranger = strangers_[i];
      try {
        if (std::optional<Client> client = Hear(stranger.get())) {
          strangers_.erase(strangers_.begin() + static_cast<std::ptrdiff_t>(i));
          return std::move(*client);
        }
      } catch (const std::runtime_error& error) {
        Say("refused " + stranger->peer + ": " + error.what());
        stranger->conn.Close();
      }
    }
    DropTheSlow();
    if (known < kMostStrangers && sockets[known].revents != 0) Accept();
    if (tracker_ && offered_ && SecondsUntil(next_look_) <= 0) LookAtTheKey(events);
  }
}

double Listening::Nap() const {
  double nap = kLook;
  const bool full = strangers_.size() >= kMostStrangers;
  for (const auto& stranger : strangers_) {
    nap = std::min(nap, SecondsUntil(stranger->since) + (full ? kCrowdedPatience : kPatience));
  }
  return std::max(nap, 0.05);
}

void Listening::OfferAKey(Events* events) {
  match_key_ = RandomKey(key_);
  taken_ = 0;
  while (!tracker_->Offer(events, match_key_)) events->Sleep(kRetry);
  offered_ = true;
  next_look_ = In(kLook);
}

void Listening::LookAtTheKey(Events* events) {
  next_look_ = In(kLook);
  switch (tracker_->Ask(events, match_key_)) {
    case TrackerLink::Key::kWaiting:
      taken_ = 0;
      break;
    case TrackerLink::Key::kTaken:
      // Unless its client comes soon, it went away, and others wait for a key.
      taken_ += kLook;
      offered_ = taken_ < kUnused;
      break;
    case TrackerLink::Key::kLost:
      offered_ = false;
  }
}

void Listening::Accept() {
  while (strangers_.size() < kMostStrangers) {
    auto stranger = std::make_unique<Stranger>();
    stranger->conn = Fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!stranger->conn) {
      if (errno != EAGAIN && errno != ECONNABORTED && errno != EINTR) Say(SystemError("accept"));
      return;
    }
    stranger->peer = PeerOf(stranger->conn.get());
    const int yes = 1;
    setsockopt(stranger->conn.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    strangers_.push_back(std::move(stranger));
  }
}

void Listening::DropTheSlow() {
  bool crowded = false;
  if (strangers_.size() >= kMostStrangers) {
    pollfd waiting{listener_.get(), POLLIN, 0};
    crowded = poll(&waiting, 1, 0) > 0;
  }
  const Clock::time_point late = In(-(crowded ? kCrowdedPatience : kPatience));
  for (const auto& stranger : strangers_) {
    if (stranger->conn && stranger->since < late) {
      Say("refused " + stranger->peer + ": half a handshake, then nothing");
      stranger->conn.Close();
    }
  }
  const auto closed = [](const std::unique_ptr<Stranger>& one) { return !one->conn; };
  strangers_.erase(std::remove_if(strangers_.begin(), strangers_.end(), closed), strangers_.end());
}

std::optional<Client> Listening::Hear(Stranger* stranger) {
  char part[kLongestText];
  while (const size_t wanted = stranger->opening.wanted()) {
    const ssize_t got = recv(stranger->conn.get(), part, wanted, MSG_DONTWAIT);
    if (got == 0) throw Refused("the peer closed the connection");
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
    if (got < 0) throw Refused(std::strerror(errno));
    stranger->opening.Take({part, static_cast<size_t>(got)});
  }
  return Welcome(stranger);
}

Client Listening::Welcome(Stranger* stranger) {
  const int fd = stranger->conn.get();
  // A new connection has room for this much: it is sent at once, or the peer is none.
  const auto send_now = [fd](const std::string& words) {
    if (send(fd, words.data(), words.size(), MSG_NOSIGNAL | MSG_DONTWAIT) != static_cast<ssize_t>(words.size())) {
      throw Refused("the peer takes no answer");
    }
  };
  const std::string& words = stranger->opening.text();
  try {
    CheckKey(words, match_key_);
  } catch (const Refused&) {
    send_now(Number(kMismatch));
    throw;
  }
  Client client;
  client.limit = TimeLimit(words);
  send_now(Number(kMagic) + Text("server:" + key_));
  client.conn = std::move(stranger->conn);
  client.peer = stranger->peer;
  return client;
}

}  // namespace codl_server
