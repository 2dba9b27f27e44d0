// The connection to a TVM RPC tracker, through which clients find this phone.
#ifndef TVM_CODL_SERVER_TRACKER_CLIENT_H_
#define TVM_CODL_SERVER_TRACKER_CLIENT_H_

#include <string>

#include "coexec/json.h"
#include "socket.h"

namespace codl_server {

class TrackerClient {
 public:
  // The tracker sends clients to `advertised`, or, if that is empty, to the address where it sees this phone.
  TrackerClient(Address tracker, std::string key, uint16_t port, const std::string& advertised);
  // Tells the tracker that this phone is free for the client that brings `match_key`.  False if it cannot be reached.
  bool Offer(Events* events, const std::string& match_key);
  enum class Key { kWaiting, kTaken, kLost };
  // Whether a client has got the key from the tracker.
  Key Query(Events* events, const std::string& match_key);
  void Close() { conn_.Close(); }

 private:
  void Connect(Events* events);
  std::string Ask(Events* events, const tvm_codl::JsonArray& question);
  // Like Ask; throws Refused with `failure` unless the answer is success.
  void Tell(Events* events, const tvm_codl::JsonArray& message, const std::string& failure);
  void Lost(const std::string& why);

  Address tracker_;
  std::string key_;
  uint16_t port_;
  picojson::value advertised_;  // text or null
  Fd conn_;
  std::string last_error_;  // an error is logged once, not every second
};

}  // namespace codl_server

#endif  // TVM_CODL_SERVER_TRACKER_CLIENT_H_
