#include "facts.h"

#include <sys/utsname.h>
#include <tvm/runtime/c_runtime_api.h>

#include <cstdlib>
#include <fstream>
#ifdef __ANDROID__
#include <sys/system_properties.h>
#endif

namespace codl_server {

namespace {

#ifdef __ANDROID__
std::string Property(const char* name) {
  char value[PROP_VALUE_MAX] = "";
  __system_property_get(name, value);
  return value;
}
#endif

// The phone's or board's own name.
std::string MachineName() {
  if (const char* name = std::getenv("CODL_PHONE_NAME"); name != nullptr && *name != '\0') return name;
#ifdef __ANDROID__
  const std::string model = Property("ro.product.model");
  if (!model.empty()) return Property("ro.product.manufacturer") + " " + model;
#endif
  std::ifstream file("/proc/device-tree/model");
  std::string board;
  if (std::getline(file, board, '\0') && !board.empty()) return board;
  return "native phone (" + CpuName() + ")";
}

}  // namespace

std::string BuildId() { return CODL_BUILD_ID; }

std::string BuildJson(const Limits& limits) {
  return Json(JsonObject{{"build_id", Json(BuildId())},
                         {"coexec", Json(CODL_COEXEC_ID)},
                         {"tvm", Json(TVM_VERSION)},
                         {"platform", Json(CODL_PLATFORM)},
                         {"kind", Json(CODL_KIND)},
                         {"compiler", Json(__VERSION__)},
                         {"packet_bytes", Json(limits.packet_bytes)},
                         {"session_s", Json(limits.session_s)},
                         {"memory_bytes", Json(limits.memory_bytes)}})
      .serialize();
}

std::string ProfileJson() {
  utsname machine{};
  // An app in the foreground may get other clocks than a process of the shell: keep their measurements apart.
  const bool app = std::string(CODL_KIND) == "app";
  JsonObject profile{{"name", Json(MachineName() + (app ? " (app)" : ""))},
                     {"arch", Json(uname(&machine) == 0 ? machine.machine : "unknown")},
                     {"build_id", Json(BuildId())}};
  for (const JsonObject& facts : {CpuFacts(), GpuFacts()}) {
    for (const auto& fact : facts) profile.insert(fact);
  }
  return Json(profile).serialize();
}

}  // namespace codl_server
