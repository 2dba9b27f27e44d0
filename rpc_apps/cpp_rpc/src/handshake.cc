#include "handshake.h"

#include <cmath>
#include <cstdlib>

namespace codl_server {

namespace {

constexpr std::string_view kSpace = " \t\r\n\v\f";
constexpr size_t kLongestShown = 64;

// Removes the first word; empty if there is none.
std::string_view NextWord(std::string_view* words) {
  const size_t begin = words->find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  words->remove_prefix(begin);
  const std::string_view word = words->substr(0, words->find_first_of(kSpace));
  words->remove_prefix(word.size());
  return word;
}

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
  for (std::string_view word = NextWord(&words); !word.empty(); word = NextWord(&words)) {
    if (word.substr(0, kOption.size()) != kOption) continue;
    const std::string value(word.substr(kOption.size()));
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
  constexpr std::string_view kClient = "client:";
  const std::string_view word = NextWord(&words);
  if (word.substr(0, kClient.size()) != kClient || word.substr(kClient.size()) != key) {
    throw Refused("a key that is not this phone's, or no longer");
  }
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
