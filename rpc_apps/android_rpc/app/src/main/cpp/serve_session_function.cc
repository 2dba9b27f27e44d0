// What the app's Java calls for each client: the same session as that of the server for a shell (rpc_apps/cpp_rpc).
#include <tvm/runtime/registry.h>
#include <unistd.h>

#include <string>

#include "environment.h"
#include "serve_session.h"

namespace {

// Returns when the client has left, with the connection closed; limits are the supervisor's affair.
void Serve(int64_t conn, const std::string& folder) {
  struct Closed {
    int conn;
    ~Closed() { close(conn); }
  } closed{static_cast<int>(conn)};
  // TVM starts its threads when the client first needs them.
  codl_server::SetEnvironment();
  codl_server::ServeSession(closed.conn, folder, codl_server::Limits{});
}

}  // namespace

TVM_REGISTER_GLOBAL("codl.serve_session").set_body_typed(Serve);
