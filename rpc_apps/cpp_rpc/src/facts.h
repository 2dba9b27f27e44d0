// What the server tells about the phone (its profile) and about itself (its build).
#ifndef TVM_CODL_SERVER_FACTS_H_
#define TVM_CODL_SERVER_FACTS_H_

#include <string>

#include "coexec/json.h"
#include "session.h"

namespace codl_server {

using tvm_codl::Json;
using tvm_codl::JsonArray;
using tvm_codl::JsonObject;

// A DeviceProfile (tvm_codl/device/profile.py) as JSON.  Starts OpenCL; without one, the GPU's facts are missing.
std::string ProfileJson();

// The build id changes with the sources of the server and the co-executor, TVM's version and the platform.
std::string BuildId();

// JSON: build_id; coexec, an id of the co-executor's sources and TVM's version, which must be the client's; tvm;
// platform; kind ("server", or "app" in the Android app); compiler; and the limits packet_bytes, session_s and
// memory_bytes (0: none).
std::string BuildJson(const Limits& limits);

// The CPU's part of the profile, from Linux (the same sources and order as tvm_codl/device/cpu.py).
JsonObject CpuFacts();
// "Cortex-A76", else the architecture.
std::string CpuName();
// The GPU's part of the profile, for the OpenCL device that TVM's runtime picks.
JsonObject GpuFacts();

// Sets the environment variables that TVM reads when it starts its threads, unless they are set.
void SetEnvironment();

}  // namespace codl_server

#endif  // TVM_CODL_SERVER_FACTS_H_
