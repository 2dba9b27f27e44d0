// A session's work: TVM's server loop, and the functions that clients of tvm_codl call.
#ifndef TVM_CODL_SERVER_SERVE_SESSION_H_
#define TVM_CODL_SERVER_SERVE_SESSION_H_

#include <filesystem>

#include "session.h"

namespace codl_server {

// Returns when the client has closed the session.
void ServeSession(int conn, const std::filesystem::path& folder, const Limits& limits);

}  // namespace codl_server

#endif  // TVM_CODL_SERVER_SERVE_SESSION_H_
