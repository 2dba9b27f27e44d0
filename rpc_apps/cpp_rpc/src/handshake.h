// The opening words of TVM RPC: a number, and a text with its length before it (see TVM's rpc/server.py).
//
// They come from strangers, so they are read byte by byte as they arrive, with a limit on what may be claimed; no
// socket is known here, so that a fuzzer can feed it.
#ifndef TVM_CODL_SERVER_OPENING_H_
#define TVM_CODL_SERVER_OPENING_H_

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

// The peer speaks another protocol, breaks this one, or has the wrong key.
class Refused : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class Speaker { kClient, kProxy };

class Opening {
 public:
  explicit Opening(Speaker speaker) : speaker_(speaker) {}
  // How many bytes are needed next; 0 when all are there.  Never more than kLongestText.
  size_t wanted() const { return wanted_ - part_.size(); }
  // At most wanted() bytes.  Throws Refused as soon as they cannot be the beginning of an opening.
  void Take(std::string_view bytes);
  // What the peer said after the number, when all of it is there.
  const std::string& text() const { return part_; }

 private:
  enum class Stage { kNumber, kLength, kText };

  Speaker speaker_;
  Stage stage_ = Stage::kNumber;
  size_t wanted_ = sizeof(int32_t);
  std::string part_;
};

// The time limit of a session in seconds, which a client names among its words as -timeout=SECONDS; 0: none.
// Throws Refused where it names something else.
double TimeLimit(std::string_view words);

// Throws Refused unless the first word is `client:` and the key.
void CheckKey(std::string_view words, std::string_view key);

// What a peer is sent: numbers are little endian.
std::string Number(int32_t value);
std::string Text(std::string_view text);
int32_t NumberIn(std::string_view four_bytes);

// Words of a stranger, made fit for a log: printable and short.
std::string Printable(std::string_view words);

}  // namespace codl_server

#endif  // TVM_CODL_SERVER_OPENING_H_
