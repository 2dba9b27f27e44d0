#include "options.h"

#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>

namespace codl_server {

const char* const kUsage =
    R"(tvm_codl_server: a phone's server for TVM RPC, with tvm_codl's co-executor.

  --listen HOST:PORT      address and first port to try          [127.0.0.1:9090]
  --host HOST --port N    the same, apart; port 0 takes any free one
  --port-end N            end of the ports to try                [9199]
  --tracker HOST:PORT     a tracker to register at
  --custom-addr HOST      where the tracker's clients are told to come to
  --proxy HOST:PORT       a proxy to serve through, instead of a port
  --key KEY               the key that clients ask for           [codl]
  --session-timeout S     ends every session after S seconds; 0: as its client asks  [0]
  --max-packet-mb N       the longest packet of a session, in MiB  [a quarter of the memory, at most 1024]
  --session-memory-mb N   the data that a session may hold, in MiB; 0: no limit  [0]
  --work-dir DIR          where sessions have their folders      [a new one in $TMPDIR]
  --parent PID            end when that process, which started this one, has ended
  --version               say what this program was built from, as JSON
  --help

TVM RPC has no password and runs whatever it is sent.  An address other than 127.0.0.1 is for networks you trust.
)";

namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr long kMostMiB = 1 << 24;

long ParseInteger(const std::string& name, const std::string& text, long least, long most) {
  char* end = nullptr;
  const long value = std::strtol(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || value < least || value > most) {
    throw UsageError(name + " takes a whole number from " + std::to_string(least) + " to " + std::to_string(most) +
                     ", not '" + text + "'");
  }
  return value;
}

double ParseSeconds(const std::string& name, const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !std::isfinite(value) || value < 0) {
    throw UsageError(name + " takes seconds, not '" + text + "'");
  }
  return value;
}

}  // namespace

Address ParseAddress(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) throw UsageError("'" + text + "' is not host:port");
  std::string host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  const long port = ParseInteger("the port of " + text, text.substr(colon + 1), 0, 65535);
  return {host, static_cast<uint16_t>(port)};
}

Options Parse(int argc, char** argv) {
  Options options;
  using Take = std::function<void(const std::string& name, const std::string& value)>;
  const auto text = [](std::string* into) -> Take { return [into](auto&, auto& value) { *into = value; }; };
  const auto address = [](std::optional<Address>* into) -> Take {
    return [into](auto&, auto& value) { *into = ParseAddress(value); };
  };
  const auto integer = [](int* into, long least, long most) -> Take {
    return [=](auto& name, auto& value) { *into = static_cast<int>(ParseInteger(name, value, least, most)); };
  };
  const auto mib = [](uint64_t* into, long least) -> Take {
    return [=](auto& name, auto& value) {
      *into = kMiB * static_cast<uint64_t>(ParseInteger(name, value, least, kMostMiB));
    };
  };
  const std::map<std::string, Take> takers = {
      {"--listen",
       [&](auto&, auto& value) {
         const Address listen = ParseAddress(value);
         options.host = listen.host;
         options.port = listen.port;
       }},
      {"--host", text(&options.host)},
      {"--port", integer(&options.port, 0, 65535)},
      {"--port-end", integer(&options.port_end, 0, 65536)},
      {"--tracker", address(&options.tracker)},
      {"--proxy", address(&options.proxy)},
      {"--key", text(&options.key)},
      {"--custom-addr", text(&options.custom_addr)},
      {"--work-dir", text(&options.work_dir)},
      {"--parent", integer(&options.parent, 1, 1 << 30)},
      {"--session-timeout", [&](auto& name, auto& value) { options.limits.session_s = ParseSeconds(name, value); }},
      {"--max-packet-mb", mib(&options.limits.packet_bytes, 1)},
      {"--session-memory-mb", mib(&options.limits.memory_bytes, 0)},
  };
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--help" || word == "-h") {
      options.help = true;
      continue;
    }
    if (word == "--version") {
      options.version = true;
      continue;
    }
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const auto taker = takers.find(name);
    if (taker == takers.end()) throw UsageError("there is no option " + name);
    if (equals == std::string::npos && i + 1 == argc) throw UsageError(name + " takes a value");
    taker->second(name, equals == std::string::npos ? std::string(argv[++i]) : word.substr(equals + 1));
  }
  if (options.tracker && options.proxy) throw UsageError("--tracker and --proxy exclude each other");
  if (options.key.empty() || options.key.size() > 256 ||
      options.key.find_first_of(" \t\r\n\v\f") != std::string::npos) {
    throw UsageError("a key is 1 to 256 bytes without spaces");
  }
  return options;
}

}  // namespace codl_server
