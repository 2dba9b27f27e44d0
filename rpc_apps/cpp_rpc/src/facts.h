// The facts of a phone that its profile holds (tvm_codl/device/profile.py), asked from the machine this runs on.
#ifndef TVM_CODL_SERVER_FACTS_H_
#define TVM_CODL_SERVER_FACTS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace codl_server {

// A DeviceProfile as JSON.  Starts OpenCL, where there is one; without, the facts of the GPU are missing.
std::string ProfileJson();

// The CPU's facts, as Linux tells them (the same sources and order as tvm_codl/device/cpu.py).
std::string ClustersJson();
std::string CachesJson();
// The processor's name, else its architecture.
std::string CpuName();
// What LLVM is told to make code for this CPU: `llvm -mtriple=... -mcpu=... -mattr=...`.
std::string CpuTarget();
// Of the slowest cluster, where there are several; else 0.
int SlowCores();
// The cores that this process may use.
std::vector<int> AllowedCores();
// Linux's list of cores: 0-3,6 is 0, 1, 2, 3, 6.  Empty for anything else.
std::vector<int> Listed(const std::string& text);

// The OpenCL device that TVM's runtime picks.
struct GpuFacts {
  bool found = false;
  bool on_cpu = false;
  std::string name, version, extensions, memory_kind;
  uint64_t compute_units = 0, max_work_group = 0, local_memory = 0, cache = 0, wave = 0, mhz = 0, memory = 0;
  uint64_t largest_buffer = 0, vector_width = 0, image_width = 0, image_height = 0;
  uint64_t device_queues = 0, device_queue_size = 0, device_events = 0;
  bool unified = false, images = false;
};
GpuFacts AskGpu();

}  // namespace codl_server

#endif  // TVM_CODL_SERVER_FACTS_H_
