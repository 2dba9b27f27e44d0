// Where a thread may run while it has nothing to compute.
#ifndef TVM_CODL_COEXEC_ROAMING_H_
#define TVM_CODL_COEXEC_ROAMING_H_

namespace tvm_codl {

// With CODL_GPU_CORES some of the machine's cores stand for the GPU, and the thread of a run keeps to the CPU's.  Where
// another process uses those, a thread that only enqueues or waits for the GPU would queue for them needlessly; on a
// phone it would move to a free core.  Without CODL_GPU_CORES both functions do nothing.

// Lets this thread use the GPU's cores too, until ReturnToCpu.
void LeaveCpu();
// Back to the cores that this thread had before LeaveCpu; it may have to queue for them.
void ReturnToCpu();

}  // namespace tvm_codl

#endif  // TVM_CODL_COEXEC_ROAMING_H_
