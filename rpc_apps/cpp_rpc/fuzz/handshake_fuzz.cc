// Fuzzes what reads bytes of untrusted peers: the handshake and the headers of packets.
//
// A libFuzzer target (clang++ -fsanitize=fuzzer,address,undefined); mutate.cc drives it where there is no libFuzzer.
// The first byte chooses the peer, the second how the bytes are split as they arrive.  Aborts if a promise is broken.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include "../src/handshake.h"
#include "../src/packets.h"

namespace {

using namespace codl_server;

void Must(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "broken: %s\n", promise);
  std::abort();
}

struct Result {
  bool refused = false, complete = false;
  std::string text;
  size_t taken = 0;  // bytes read
  bool operator==(const Result& other) const {
    return refused == other.refused && complete == other.complete && text == other.text;
  }
};

// Feeds the bytes in parts of at most `part`.
Result Feed(Peer peer, std::string_view bytes, size_t part) {
  Result result;
  Handshake handshake(peer);
  try {
    while (!bytes.empty() && handshake.wanted() != 0) {
      Must(handshake.wanted() <= static_cast<size_t>(kLongestText), "no more than a kilobyte is ever wanted");
      const std::string_view next = bytes.substr(0, std::min(part, handshake.wanted()));
      bytes.remove_prefix(next.size());
      result.taken += next.size();
      handshake.Take(next);
    }
    result.complete = handshake.wanted() == 0;
    if (result.complete) result.text = handshake.text();
  } catch (const Refused&) {
    result.refused = true;
  }
  return result;
}

void TryHandshake(Peer peer, std::string_view bytes, size_t part) {
  const Result result = Feed(peer, bytes, part);
  Must(result == Feed(peer, bytes, 1) && result == Feed(peer, bytes, bytes.size() + 1),
       "how the bytes are split makes no difference");
  Must(result.taken <= 8 + static_cast<size_t>(kLongestText), "no more is read than a handshake can be");
  if (!result.complete) return;
  Must(Number(kMagic) + Text(result.text) == bytes.substr(0, 8 + result.text.size()), "what was read is what was sent");
  for (const char c : Printable(result.text)) Must(c >= ' ' && c <= '~', "a log holds no control characters");
  try {
    const double limit = TimeLimit(result.text);
    Must(std::isfinite(limit) && limit >= 0, "a time limit is finite");
  } catch (const Refused&) {
  }
  try {
    CheckKey(result.text, "pixel");
    Must(result.text.find("client:pixel") != std::string::npos, "only the key opens");
  } catch (const Refused&) {
  }
}

void TryPackets(std::string_view bytes, size_t part) {
  constexpr uint64_t kLongest = 100;
  Packets packets(kLongest);
  uint64_t content = 0;  // of the packet that is being read
  std::string header;
  try {
    while (!bytes.empty()) {
      const size_t allowed = packets.Allowed(std::min(part, bytes.size()));
      Must(allowed > 0 && allowed <= kLongest, "something may be read, and no more than a packet");
      const std::string_view next = bytes.substr(0, allowed);
      bytes.remove_prefix(allowed);
      if (content != 0) {
        Must(next.size() <= content, "a packet's end is not passed");
        content -= next.size();
      } else {
        header.append(next);
        Must(header.size() <= 8, "a header's end is not passed");
        if (header.size() == 8) {
          for (int i = 7; i >= 0; --i) content = content << 8 | static_cast<unsigned char>(header[i]);
          header.clear();
        }
      }
      packets.Take(next);
      Must(content <= kLongest, "a claim above the limit is refused");
    }
  } catch (const Refused&) {
    Must(content > kLongest, "only a claim above the limit is refused");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  const size_t part = 1 + data[1] % 64;
  if (data[0] % 3 == 2) {
    TryPackets(bytes, part);
  } else {
    TryHandshake(data[0] % 3 == 0 ? Peer::kClient : Peer::kProxy, bytes, part);
  }
  return 0;
}
