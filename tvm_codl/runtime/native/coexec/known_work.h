// A short piece of work that always takes the same time on a core at full speed that does nothing else.
#ifndef TVM_CODL_COEXEC_KNOWN_WORK_H_
#define TVM_CODL_COEXEC_KNOWN_WORK_H_

#include <vector>

namespace tvm_codl {

// Milliseconds that it takes on each of these sets of cores, all at the same time, a fraction of one at full speed.
// Sets that a thread cannot be bound to are left out.
std::vector<double> KnownWork(const std::vector<std::vector<int>>& cores);

}  // namespace tvm_codl

#endif  // TVM_CODL_COEXEC_KNOWN_WORK_H_
