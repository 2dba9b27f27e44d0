// Where the thread that runs may be while it has nothing to compute.
#ifndef TVM_CODL_COEXEC_ROAMING_H_
#define TVM_CODL_COEXEC_ROAMING_H_

namespace tvm_codl {

// Where some of the machine's cores stand for the GPU (CODL_GPU_CORES), the thread that runs keeps to the CPU's.  Where
// another process wants these, a thread that only enqueues, or waits for the GPU's end, would queue up for nothing: as
// a thread of a phone does by itself, it then goes to a core that is free.  Without CODL_GPU_CORES both do nothing.

// This thread may be on the GPU's cores too, until ReturnToCpu.
void LeaveCpu();
// Back to the cores that it had before LeaveCpu; there it may have to queue up.
void ReturnToCpu();

}  // namespace tvm_codl

#endif  // TVM_CODL_COEXEC_ROAMING_H_
