#include "environment.h"

#include <cstdlib>
#include <string>
#include <thread>

#include "facts.h"

namespace codl_server {

// TVM would pin its threads, and OpenCL drivers that run on the CPU would inherit the pinning (DESIGN, affinity). Where
// the cores are unlike, work that is cut into equal parts would wait for the slow ones.
void SetEnvironment() {
  setenv("TVM_BIND_THREADS", "0", 0);
  const int slow = SlowCores(), fast = static_cast<int>(std::thread::hardware_concurrency()) - slow;
  if (slow > 0 && fast > 0) setenv("TVM_NUM_THREADS", std::to_string(fast).c_str(), 0);
}

}  // namespace codl_server
