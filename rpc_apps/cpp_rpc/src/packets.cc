#include "packets.h"

#include <unistd.h>

#include <algorithm>
#include <stdexcept>

#include "handshake.h"

namespace codl_server {

uint64_t DefaultPacketLimit() {
  constexpr uint64_t kMiB = 1 << 20;
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGE_SIZE);
  if (pages <= 0 || page <= 0) return 256 * kMiB;
  const uint64_t quarter = static_cast<uint64_t>(pages) / 4 * static_cast<uint64_t>(page);
  return std::clamp(quarter, 16 * kMiB, 1024 * kMiB);
}

namespace {
constexpr size_t kHeader = sizeof(uint64_t);
}

size_t Packets::Allowed(size_t size) const {
  const uint64_t most = left_ != 0 ? left_ : kHeader - header_.size();
  return static_cast<size_t>(std::min<uint64_t>(most, size));
}

void Packets::Take(std::string_view bytes) {
  if (Allowed(bytes.size()) != bytes.size()) throw std::logic_error("more bytes than allowed");
  if (left_ != 0) {
    left_ -= bytes.size();
    return;
  }
  header_.append(bytes);
  if (header_.size() < kHeader) return;
  const uint64_t low = static_cast<uint32_t>(NumberIn(std::string_view(header_).substr(0, 4)));
  const uint64_t high = static_cast<uint32_t>(NumberIn(std::string_view(header_).substr(4, 4)));
  header_.clear();
  left_ = low | high << 32;
  if (left_ > longest_) {
    throw Refused("a packet that claims " + std::to_string(left_) + " bytes; at most " + std::to_string(longest_) +
                  " are taken (--max-packet-mb)");
  }
}

}  // namespace codl_server
