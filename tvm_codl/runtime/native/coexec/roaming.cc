#include "roaming.h"

#include <sched.h>

#include <cstdlib>
#include <optional>

#include "../opencl/affinity.h"

namespace tvm_codl {

namespace {

thread_local bool away = false;
thread_local cpu_set_t home, wide;

}  // namespace

void LeaveCpu() {
  static const std::optional<cpu_set_t> of_gpu = ParseCores(std::getenv("CODL_GPU_CORES"));
  if (away || !of_gpu || sched_getaffinity(0, sizeof(home), &home) != 0) return;
  CPU_OR(&wide, &home, &*of_gpu);
  away = sched_setaffinity(0, sizeof(wide), &wide) == 0;
}

void ReturnToCpu() {
  if (!away) return;
  away = false;
  cpu_set_t now;
  // Where somebody else has moved the thread meanwhile, that holds.
  if (sched_getaffinity(0, sizeof(now), &now) == 0 && CPU_EQUAL(&now, &wide)) {
    sched_setaffinity(0, sizeof(home), &home);
  }
}

}  // namespace tvm_codl
