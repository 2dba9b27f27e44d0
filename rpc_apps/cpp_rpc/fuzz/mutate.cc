// Drives handshake_fuzz.cc with valid handshakes and random mutations of them: RUNS SEED.  The same numbers give the
// same inputs.  With the word `read` it reads frames from stdin instead (a length in four bytes, then a client's bytes)
// and prints for each `refused`, `unfinished` or `text LIMIT`.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "../src/handshake.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using namespace codl_server;

std::string Packet(uint64_t claim, size_t bytes) {
  return Number(static_cast<int32_t>(claim)) + Number(static_cast<int32_t>(claim >> 32)) + std::string(bytes, 'x');
}

std::vector<std::string> Seeds() {
  return {
      Number(kMagic) + Text("client:pixel"),
      Number(kMagic) + Text("client:pixel -timeout=2.5"),
      Number(kMagic) + Text("client:pixel\t-timeout=nan -timeout=1e999"),
      Number(kMagic) + Text(std::string(kLongestText, 'k')),
      Number(kMagic) + Number(0x7FFFFFFF),
      Number(kMagic) + Number(-1),
      Number(kDuplicate),
      "GET / HTTP/1.0\r\n\r\n",
      Packet(20, 20) + Packet(0, 0) + Packet(100, 100) + Packet(101, 101),
      Packet(uint64_t{1} << 31, 4),
      Packet(~uint64_t{0}, 4),
  };
}

void Mutate(std::string* input, std::mt19937* random) {
  const auto below = [random](size_t n) { return static_cast<size_t>((*random)() % n); };
  for (size_t times = 1 + below(4); times-- > 0;) {
    const size_t at = below(input->size() + 1);
    switch (below(6)) {
      case 0:
        if (at < input->size()) (*input)[at] ^= static_cast<char>(1 << below(8));
        break;
      case 1:
        if (at < input->size()) (*input)[at] = static_cast<char>(below(256));
        break;
      case 2:
        input->insert(at, below(16), static_cast<char>(below(256)));
        break;
      case 3:
        input->erase(at, below(8));
        break;
      case 4:
        input->resize(at);
        break;
      default:
        input->append(*input, at, std::string::npos);
    }
    if (input->size() > 4096) input->resize(4096);
  }
}

int Read() {
  const std::string all{std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
  for (size_t at = 0; at + 4 <= all.size();) {
    const size_t size = static_cast<size_t>(NumberIn(std::string_view(all).substr(at, 4)));
    std::string_view input = std::string_view(all).substr(at + 4, size);
    at += 4 + size;
    try {
      Handshake handshake(Peer::kClient);
      while (handshake.wanted() != 0 && !input.empty()) {
        const std::string_view next = input.substr(0, handshake.wanted());
        input.remove_prefix(next.size());
        handshake.Take(next);
      }
      if (handshake.wanted() != 0) {
        std::puts("unfinished");
        continue;
      }
      CheckKey(handshake.text(), "pixel");
      std::printf("text %.17g\n", TimeLimit(handshake.text()));
    } catch (const Refused&) {
      std::puts("refused");
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "read") == 0) return Read();
  if (argc != 3) {
    std::fputs("usage: RUNS SEED, or read\n", stderr);
    return 2;
  }
  const long runs = std::atol(argv[1]);
  std::mt19937 random(static_cast<uint32_t>(std::atol(argv[2])));
  const std::vector<std::string> seeds = Seeds();
  for (long run = 0; run < runs; ++run) {
    std::string input = seeds[random() % seeds.size()];
    if (run >= static_cast<long>(seeds.size())) Mutate(&input, &random);
    input.insert(0, 1, static_cast<char>(random() % 256));
    input.insert(0, 1, static_cast<char>(random() % 256));
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  }
  std::printf("%ld inputs\n", runs);
  return 0;
}
