// Which cores a thread may run on, for the length of a scope.
#ifndef TVM_CODL_OPENCL_AFFINITY_H_
#define TVM_CODL_OPENCL_AFFINITY_H_

#include <sched.h>

#include <optional>

namespace tvm_codl {

// The cores of a comma-separated list ("1" or "2,3"); nothing for null, an empty list and a malformed one.
std::optional<cpu_set_t> ParseCores(const char* cores);

class ScopedAffinity {
 public:
  // Where ParseCores finds nothing, the affinity is left alone.
  explicit ScopedAffinity(const char* cores);
  // Null leaves it alone too.
  explicit ScopedAffinity(const cpu_set_t* cores);
  ~ScopedAffinity();
  ScopedAffinity(const ScopedAffinity&) = delete;
  ScopedAffinity& operator=(const ScopedAffinity&) = delete;
  bool changed() const { return changed_; }

 private:
  void Change(const cpu_set_t& wanted);

  cpu_set_t before_;
  bool changed_ = false;
};

}  // namespace tvm_codl

#endif  // TVM_CODL_OPENCL_AFFINITY_H_
