// How clients reach this phone: on its own port, with or without a tracker, or through a proxy.
#ifndef TVM_CODL_SERVER_LISTENER_H_
#define TVM_CODL_SERVER_LISTENER_H_

#include <optional>
#include <string>
#include <vector>

#include "handshake.h"
#include "socket.h"
#include "tracker_client.h"

namespace codl_server {

// A client after its handshake.  `limit` is its time limit in seconds; 0: none.
struct Client {
  Fd conn;
  std::string peer;
  double limit = 0;
};

class Listener {
 public:
  virtual ~Listener() = default;
  // Waits for the next client.
  virtual Client Next(Events* events) = 0;
  // Closes the server's sockets in a session's process.
  virtual void Close() {}
};

class PortListener final : public Listener {
 public:
  // Without a tracker, clients bring `key` itself.
  PortListener(Fd socket, std::string key, std::optional<TrackerClient> tracker);
  Client Next(Events* events) final;
  void Close() final;

 private:
  // A connection before the end of its handshake.
  struct Pending {
    Fd conn;
    std::string peer;
    Handshake handshake{Peer::kClient};
    Clock::time_point since = Clock::now();
  };

  void OfferKey(Events* events);
  void CheckKeyTaken(Events* events);
  void Accept();
  void DropSlow();
  // The client, once its handshake is complete.
  std::optional<Client> Read(Pending* pending);
  Client Answer(Pending* pending);
  // Seconds until something is due.
  double WaitTime() const;

  Fd socket_;
  std::string key_, match_key_;
  std::optional<TrackerClient> tracker_;
  bool offered_ = false;
  double taken_ = 0;  // s since a client took the key from the tracker
  Clock::time_point next_check_{};
  std::vector<Pending> pending_;
};

class ProxyListener final : public Listener {
 public:
  ProxyListener(Address proxy, std::string key) : proxy_(std::move(proxy)), key_(std::move(key)) {}
  Client Next(Events* events) final;

 private:
  Client ConnectAndWait(Events* events);

  Address proxy_;
  std::string key_, last_error_;  // an error is logged once, not every second
};

}  // namespace codl_server

#endif  // TVM_CODL_SERVER_LISTENER_H_
