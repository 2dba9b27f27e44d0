// The packets of a session: eight bytes that say how long it is, and that many more.
//
// TVM's endpoint makes room for whatever a packet's header claims, and fills it with zeros, before a byte of it has
// come. So the claim is looked at first.  No socket here either.
#ifndef TVM_CODL_SERVER_PACKETS_H_
#define TVM_CODL_SERVER_PACKETS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace codl_server {

// The longest packet that is taken unless told otherwise: a quarter of the memory, at most 1 GiB.
uint64_t UsualPacket();

class Packets {
 public:
  explicit Packets(uint64_t longest) : longest_(longest) {}
  // How many of `size` bytes may be read at once so that a header's end is not passed.
  size_t Allowed(size_t size) const;
  // The next bytes, at most Allowed() of them.  Throws Refused for a claim above the limit.
  void Take(std::string_view bytes);

 private:
  uint64_t longest_;
  uint64_t left_ = 0;   // of the packet's content; 0 while its header is read
  std::string header_;  // as much of it as has come
};

}  // namespace codl_server

#endif  // TVM_CODL_SERVER_PACKETS_H_
