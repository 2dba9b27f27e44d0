// The app's Java calls this for each client: the same session as the shell server's (rpc_apps/cpp_rpc).
#include <tvm/runtime/registry.h>
#include <unistd.h>

#include <string>

#include "facts.h"
#include "serve_session.h"

namespace {

// Returns when the client has left, with the connection closed.  The supervisor enforces limits.
void Serve(int64_t conn, const std::string& folder) {
  struct Closed {
    int conn;
    ~Closed() { close(conn); }
  } closed{static_cast<int>(conn)};
  // Before TVM starts its threads, at the client's first call.
  codl_server::SetEnvironment();
  codl_server::ServeSession(closed.conn, folder, codl_server::Limits{});
}

}  // namespace

TVM_REGISTER_GLOBAL("codl.serve_session").set_body_typed(Serve);
