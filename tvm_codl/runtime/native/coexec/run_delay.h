// How long this thread could have run and had no core: other processes' doing, where there are enough cores for ours.
#ifndef TVM_CODL_COEXEC_RUN_DELAY_H_
#define TVM_CODL_COEXEC_RUN_DELAY_H_

#include <cstdint>

namespace tvm_codl {

// Nanoseconds since the thread began, from the kernel's /proc/thread-self/schedstat; 0 always where there is none.
int64_t RunDelay();

}  // namespace tvm_codl

#endif  // TVM_CODL_COEXEC_RUN_DELAY_H_
