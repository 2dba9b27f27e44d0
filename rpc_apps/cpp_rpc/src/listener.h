// How clients come to this phone: by its own port, with or without a tracker, or through a proxy.
#ifndef TVM_CODL_SERVER_FRONT_H_
#define TVM_CODL_SERVER_FRONT_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "opening.h"
#include "socket.h"
#include "tracker_link.h"

namespace codl_server {

// One that shook hands.  `limit` is its time limit in seconds; 0: none.
struct Client {
  Fd conn;
  std::string peer;
  double limit = 0;
};

class Front {
 public:
  virtual ~Front() = default;
  virtual Client Next(Events* events) = 0;
  // In a session's process, which must not hold the server's sockets.
  virtual void Close() = 0;
};

class Listening final : public Front {
 public:
  // `tracker` may be missing: then clients bring `key` itself.
  Listening(Fd listener, std::string key, std::optional<TrackerLink> tracker);
  Client Next(Events* events) final;
  void Close() final;

 private:
  // A connection that has not shaken hands yet.
  struct Stranger {
    Fd conn;
    std::string peer;
    Opening opening{Speaker::kClient};
    Clock::time_point since = Clock::now();
  };

  void OfferAKey(Events* events);
  void LookAtTheKey(Events* events);
  void Accept();
  void DropTheSlow();
  // The client, once it has said all that it must.
  std::optional<Client> Hear(Stranger* stranger);
  Client Welcome(Stranger* stranger);
  double Nap() const;

  Fd listener_;
  std::string key_, match_key_;
  std::optional<TrackerLink> tracker_;
  bool offered_ = false;
  double taken_ = 0;  // s for which the key has been a client's that has not come
  Clock::time_point next_look_{};
  std::vector<std::unique_ptr<Stranger>> strangers_;
};

class Proxied final : public Front {
 public:
  Proxied(Address proxy, std::string key) : proxy_(std::move(proxy)), key_(std::move(key)) {}
  Client Next(Events* events) final;
  void Close() final {}

 private:
  Client Through(Events* events);

  Address proxy_;
  std::string key_, complaint_;
};

}  // namespace codl_server

#endif  // TVM_CODL_SERVER_FRONT_H_
