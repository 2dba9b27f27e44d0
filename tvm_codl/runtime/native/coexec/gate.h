// A gate in the GPU's list that the CPU opens.
#ifndef TVM_CODL_COEXEC_GATE_H_
#define TVM_CODL_COEXEC_GATE_H_

#include <CL/cl.h>

#include <atomic>
#include <condition_variable>
#include <mutex>

namespace tvm_codl {

// Where the GPU is played by a CPU core, its list waits for the CPU in a native kernel: a function of ours that its
// driver's thread runs in order.  It spins before it sleeps, as the CPU does.  A user event would let that thread sleep
// at once; to wake it takes the CPU up to 25 us on a virtual machine, and its next kernel starts 70 us later.
class Gate {
 public:
  // Enqueues the wait; the gate is shut until Open().  It spins for so long, then it sleeps.
  void Enqueue(cl_command_queue queue, int spin_us);
  void Open();

 private:
  static void CL_CALLBACK Await(void* gate);
  void Await();

  int spin_us_ = 0;
  std::atomic<bool> open_{false};
  std::atomic<bool> asleep_{false};
  std::mutex mutex_;
  std::condition_variable opened_;
};

// Whether a device runs native kernels.
bool HasGates(cl_device_id device);

}  // namespace tvm_codl

#endif  // TVM_CODL_COEXEC_GATE_H_
