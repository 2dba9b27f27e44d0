// The command line.
#ifndef TVM_CODL_SERVER_OPTIONS_H_
#define TVM_CODL_SERVER_OPTIONS_H_

#include <optional>
#include <stdexcept>
#include <string>

#include "session.h"

namespace codl_server {

extern const char* const kUsage;

class UsageError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Options {
  std::string host = "127.0.0.1";
  int port = 9090, port_end = 9199;
  std::optional<Address> tracker, proxy;
  std::string key = "codl";
  std::string custom_addr;  // the address that the tracker gives to clients
  std::string work_dir;
  int parent = 0;
  Limits limits;
  bool help = false, version = false;
};

// Takes `--name value` and `--name=value`.  Throws UsageError.
Options Parse(int argc, char** argv);

// host:port, [host]:port for IPv6.  Throws UsageError.
Address ParseAddress(const std::string& text);

}  // namespace codl_server

#endif  // TVM_CODL_SERVER_OPTIONS_H_
