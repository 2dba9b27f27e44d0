// Checks the packets of a session: eight bytes of length, then that many bytes.
//
// TVM's endpoint allocates and zeroes whatever length a header claims before any content has arrived.  So the length is
// checked first.  No sockets here either.
#ifndef TVM_CODL_SERVER_PACKETS_H_
#define TVM_CODL_SERVER_PACKETS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace codl_server {

// The default limit of a packet: a quarter of the memory, at most 1 GiB.
uint64_t DefaultPacketLimit();

class Packets {
 public:
  explicit Packets(uint64_t longest) : longest_(longest) {}
  // How many of `size` bytes may be read at once without passing the end of a header or packet.
  size_t Allowed(size_t size) const;
  // The next bytes, at most Allowed() of them.  Throws Refused for a length above the limit.
  void Take(std::string_view bytes);

 private:
  uint64_t longest_;
  uint64_t left_ = 0;   // bytes of the packet's content; 0 while its header is read
  std::string header_;  // as far as received
};

}  // namespace codl_server

#endif  // TVM_CODL_SERVER_PACKETS_H_
