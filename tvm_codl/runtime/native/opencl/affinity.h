// Sets of CPU cores, and the cores that a thread may run on within a scope.
#ifndef TVM_CODL_OPENCL_AFFINITY_H_
#define TVM_CODL_OPENCL_AFFINITY_H_

#include <sched.h>

#include <vector>

namespace tvm_codl {

// Linux's list format: "0-3,6" is 0, 1, 2, 3, 6.  Empty for null and for malformed text.
cpu_set_t ParseCores(const char* text);
cpu_set_t ToCpuSet(const std::vector<int>& cores);
std::vector<int> ToCores(const cpu_set_t& set);
// The cores that this thread may run on.
cpu_set_t AllowedCores();

class ScopedAffinity {
 public:
  // An empty set leaves the affinity as it is.
  explicit ScopedAffinity(const cpu_set_t& cores);
  ~ScopedAffinity();
  ScopedAffinity(const ScopedAffinity&) = delete;
  ScopedAffinity& operator=(const ScopedAffinity&) = delete;
  bool changed() const { return changed_; }

 private:
  cpu_set_t before_;
  bool changed_ = false;
};

}  // namespace tvm_codl

#endif  // TVM_CODL_OPENCL_AFFINITY_H_
