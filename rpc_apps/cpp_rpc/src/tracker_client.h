// The connection to a TVM RPC tracker, by which clients learn of this phone.
#ifndef TVM_CODL_SERVER_TRACKER_LINK_H_
#define TVM_CODL_SERVER_TRACKER_LINK_H_

#include <string>

#include "socket.h"

namespace codl_server {

class TrackerLink {
 public:
  // Clients are told to come to `advertised`, or to where the tracker sees this phone where that is empty.
  TrackerLink(Address tracker, std::string key, uint16_t port, std::string advertised);
  // Tells the tracker that this phone is free for whoever brings `match_key`.  False where it cannot be reached.
  bool Offer(Events* events, const std::string& match_key);
  enum class Key { kWaiting, kTaken, kLost };
  // Whether a client has got the key from the tracker.
  Key Ask(Events* events, const std::string& match_key);
  int fd() const { return conn_.get(); }
  void Close() { conn_.Close(); }

 private:
  void Connect(Events* events);
  std::string Answer(Events* events, const std::string& question);
  void Lost(const std::string& why);

  Address tracker_;
  std::string key_;
  uint16_t port_;
  std::string advertised_;  // JSON: a text or null
  Fd conn_;
  std::string complaint_;  // the last one, not to be repeated every second
};

}  // namespace codl_server

#endif  // TVM_CODL_SERVER_TRACKER_LINK_H_
