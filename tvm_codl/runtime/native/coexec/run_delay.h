// How long this thread waited for a core because of other processes.
#ifndef TVM_CODL_COEXEC_RUN_DELAY_H_
#define TVM_CODL_COEXEC_RUN_DELAY_H_

#include <cstdint>

namespace tvm_codl {

// Nanoseconds since the thread began, from the kernel's /proc/thread-self/schedstat; always 0 without that file.
int64_t RunDelay();

}  // namespace tvm_codl

#endif  // TVM_CODL_COEXEC_RUN_DELAY_H_
