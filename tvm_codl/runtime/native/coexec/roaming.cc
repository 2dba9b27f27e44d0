#include "roaming.h"

#include <cstdlib>

#include "../opencl/affinity.h"

namespace tvm_codl {

namespace {

thread_local bool away = false;
thread_local cpu_set_t home, wide;

}  // namespace

void LeaveCpu() {
  static const cpu_set_t gpu_cores = ParseCores(std::getenv("CODL_GPU_CORES"));
  if (away || CPU_COUNT(&gpu_cores) == 0 || sched_getaffinity(0, sizeof(home), &home) != 0) return;
  CPU_OR(&wide, &home, &gpu_cores);
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
