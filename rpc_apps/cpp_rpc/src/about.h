// What this program was built from, and what it allows.
#ifndef TVM_CODL_SERVER_ABOUT_H_
#define TVM_CODL_SERVER_ABOUT_H_

#include <string>

#include "session.h"

namespace codl_server {

// Changes with the sources of the server and the co-executor, with TVM's version and with the platform.
std::string BuildId();

// "server", or "app" where the Android app has these sources in it.
std::string Kind();

// JSON: build_id; coexec, which is the co-executor's sources and TVM's version, and must be the client's; tvm;
// platform; kind, which is server or app; compiler; packet_bytes, session_s and memory_bytes, which are the limits (0:
// none).
std::string BuildJson(const Limits& limits);

}  // namespace codl_server

#endif  // TVM_CODL_SERVER_ABOUT_H_
