// Lists of CPU cores, and the cores that a thread may run on within a scope.
#ifndef TVM_CODL_OPENCL_AFFINITY_H_
#define TVM_CODL_OPENCL_AFFINITY_H_

#include <sched.h>

#include <string>
#include <vector>

namespace tvm_codl {

// Linux's list format: "0-3,6" is 0, 1, 2, 3, 6.  Empty for malformed text.
std::vector<int> ParseCores(const std::string& text);
// The cores named by an environment variable; empty where it is unset or malformed.
std::vector<int> CoresFromEnvironment(const char* variable);

cpu_set_t ToCpuSet(const std::vector<int>& cores);
std::vector<int> ToCores(const cpu_set_t& set);
// The cores that this thread may run on.
std::vector<int> AllowedCores();

class ScopedAffinity {
 public:
  // No cores, or null: the affinity stays as it is.
  explicit ScopedAffinity(const std::vector<int>& cores);
  explicit ScopedAffinity(const cpu_set_t* cores);
  ~ScopedAffinity();
  ScopedAffinity(const ScopedAffinity&) = delete;
  ScopedAffinity& operator=(const ScopedAffinity&) = delete;
  bool changed() const { return changed_; }

 private:
  void Change(const cpu_set_t& cores);

  cpu_set_t before_;
  bool changed_ = false;
};

}  // namespace tvm_codl

#endif  // TVM_CODL_OPENCL_AFFINITY_H_
