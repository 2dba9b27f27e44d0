#include "about.h"

#include <tvm/runtime/c_runtime_api.h>

#include "json.h"

namespace codl_server {

std::string BuildId() { return CODL_BUILD_ID; }

std::string Kind() { return CODL_KIND; }

std::string BuildJson(const Limits& limits) {
  return JsonObject()
      .Add("build_id", BuildId())
      .Add("coexec", CODL_COEXEC_ID)
      .Add("tvm", TVM_VERSION)
      .Add("platform", CODL_PLATFORM)
      .Add("kind", Kind())
      .Add("compiler", __VERSION__)
      .Add("packet_bytes", limits.packet_bytes)
      .AddRaw("session_s", std::to_string(limits.session_s))
      .Add("memory_bytes", limits.memory_bytes)
      .text();
}

}  // namespace codl_server
