// TVM RPC's handshake: a number, then a text preceded by its length (see TVM's rpc/server.py).
//
// The peer is not trusted: its bytes are checked as they arrive, with a limit on the length.  No sockets here, so that
// a fuzzer can feed it.
#ifndef TVM_CODL_SERVER_HANDSHAKE_H_
#define TVM_CODL_SERVER_HANDSHAKE_H_

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace codl_server {

constexpr int32_t kMagic = 0xFF271;  // also "success"
constexpr int32_t kDuplicate = kMagic + 1;
constexpr int32_t kMismatch = kMagic + 2;
constexpr int32_t kTrackerMagic = 0x2F271;
constexpr int32_t kLongestText = 1024;

// The connection to a peer cannot be used.
class PeerError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The peer speaks another protocol, violates this one, or has the wrong key.
class Refused : public PeerError {
  using PeerError::PeerError;
};

enum class Peer { kClient, kProxy };

class Handshake {
 public:
  explicit Handshake(Peer peer) : peer_(peer) {}
  // How many bytes are needed next, at most kLongestText; 0 when it is complete.
  size_t wanted() const { return wanted_ - part_.size(); }
  // At most wanted() bytes.  Throws Refused as soon as they cannot begin a handshake.
  void Take(std::string_view bytes);
  // The peer's text, once the handshake is complete.
  const std::string& text() const { return part_; }

 private:
  enum class Stage { kNumber, kLength, kText };

  Peer peer_;
  Stage stage_ = Stage::kNumber;
  size_t wanted_ = sizeof(int32_t);
  std::string part_;
};

// The session's time limit in seconds from a client's -timeout=SECONDS; 0: none.  Throws Refused if it is malformed.
double TimeLimit(std::string_view words);

// Throws Refused unless the first word is `client:` and the key.
void CheckKey(std::string_view words, std::string_view key);

// The wire format; numbers are little endian.
std::string Number(int32_t value);
std::string Text(std::string_view text);
int32_t NumberIn(std::string_view four_bytes);

// A peer's text for the log: printable and short.
std::string Printable(std::string_view words);

}  // namespace codl_server

#endif  // TVM_CODL_SERVER_HANDSHAKE_H_
