#include "handshake.h"

#include <cmath>
#include <cstdlib>
#include <sstream>

namespace codl_server {

namespace {

constexpr size_t kLongestShown = 64;

void CheckNumber(int32_t number, Peer peer) {
  if (number == kMagic) return;
  if (peer == Peer::kClient) throw Refused("not a TVM RPC client");
  if (number == kDuplicate) throw Refused("another phone already serves this key");
  throw Refused("not a TVM RPC proxy, or it dropped this phone");
}

}  // namespace

void Handshake::Take(std::string_view bytes) {
  if (bytes.size() > wanted()) throw std::logic_error("more bytes than wanted");
  part_.append(bytes);
  if (wanted() != 0 || stage_ == Stage::kText) return;
  const int32_t number = NumberIn(part_);
  if (stage_ == Stage::kNumber) {
    CheckNumber(number, peer_);
    stage_ = Stage::kLength;
  } else {
    if (number <= 0 || number > kLongestText) throw Refused("a key of " + std::to_string(number) + " bytes");
    stage_ = Stage::kText;
    wanted_ = static_cast<size_t>(number);
  }
  part_.clear();
}

double TimeLimit(std::string_view words) {
  constexpr std::string_view kOption = "-timeout=";
  std::istringstream in{std::string(words)};
  for (std::string word; in >> word;) {
    if (word.compare(0, kOption.size(), kOption) != 0) continue;
    const std::string value = word.substr(kOption.size());
    char* end = nullptr;
    const double seconds = std::strtod(value.c_str(), &end);
    if (value.empty() || end != value.c_str() + value.size() || !std::isfinite(seconds) || seconds < 0) {
      throw Refused("a time limit of '" + Printable(word) + "'");
    }
    return seconds;
  }
  return 0;
}

void CheckKey(std::string_view words, std::string_view key) {
  std::string first;
  std::istringstream(std::string(words)) >> first;
  if (first != "client:" + std::string(key)) throw Refused("a key that is not this phone's, or no longer");
}

std::string Number(int32_t value) {
  const auto bits = static_cast<uint32_t>(value);
  std::string bytes(4, '\0');
  for (int i = 0; i < 4; ++i) bytes[i] = static_cast<char>(bits >> (8 * i) & 0xFFu);
  return bytes;
}

std::string Text(std::string_view text) {
  std::string bytes = Number(static_cast<int32_t>(text.size()));
  bytes.append(text);
  return bytes;
}

int32_t NumberIn(std::string_view four_bytes) {
  uint32_t bits = 0;
  for (int i = 0; i < 4; ++i) bits |= static_cast<uint32_t>(static_cast<unsigned char>(four_bytes.at(i))) << (8 * i);
  return static_cast<int32_t>(bits);
}

std::string Printable(std::string_view words) {
  std::string shown(words.substr(0, kLongestShown));
  for (char& c : shown) {
    if (c < ' ' || c > '~') c = '?';
  }
  return shown;
}

}  // namespace codl_server
