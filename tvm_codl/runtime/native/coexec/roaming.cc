#include "roaming.h"

#include "../opencl/affinity.h"

namespace tvm_codl {

namespace {

thread_local bool away = false;
thread_local cpu_set_t home, wide;

}  // namespace

void LeaveCpu() {
  static const std::vector<int> gpu_cores = CoresFromEnvironment("CODL_GPU_CORES");
  static const cpu_set_t gpu_set = ToCpuSet(gpu_cores);
  if (away || gpu_cores.empty() || sched_getaffinity(0, sizeof(home), &home) != 0) return;
  CPU_OR(&wide, &home, &gpu_set);
  away = sched_setaffinity(0, sizeof(wide), &wide) == 0;
}

void ReturnToCpu() {
  if (!away) return;
  away = false;
  cpu_set_t now;
  // If somebody else has moved the thread meanwhile, that stands.
  if (sched_getaffinity(0, sizeof(now), &now) == 0 && CPU_EQUAL(&now, &wide)) {
    sched_setaffinity(0, sizeof(home), &home);
  }
}

}  // namespace tvm_codl
