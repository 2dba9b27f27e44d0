#include "gate.h"

#include "cl_handle.h"
#include "device.h"
#include "timeline.h"

namespace tvm_codl {

bool HasGates(cl_device_id device) {
  return (Info<cl_device_exec_capabilities>(device, CL_DEVICE_EXECUTION_CAPABILITIES) & CL_EXEC_NATIVE_KERNEL) != 0;
}

void Gate::Enqueue(cl_command_queue queue, int spin_us) {
  spin_us_ = spin_us;
  open_.store(false);
  Gate* self = this;  // the driver copies the argument
  Check(clEnqueueNativeKernel(queue, &Gate::Await, &self, sizeof(self), 0, nullptr, nullptr, 0, nullptr, nullptr),
        "clEnqueueNativeKernel");
}

void Gate::Open() {
  open_.store(true);
  if (!asleep_.load()) return;
  // Once the mutex can be had, the sleeper waits.
  std::unique_lock<std::mutex> lock(mutex_);
  lock.unlock();
  opened_.notify_one();
}

void CL_CALLBACK Gate::Await(void* gate) { (*static_cast<Gate**>(gate))->Await(); }

void Gate::Await() {
  const int64_t deadline = HostNow() + int64_t{1000} * spin_us_;
  while (!open_.load(std::memory_order_acquire)) {
    if (HostNow() < deadline) continue;
    std::unique_lock<std::mutex> lock(mutex_);
    asleep_.store(true);
    opened_.wait(lock, [this] { return open_.load(); });
    asleep_.store(false);
  }
}

}  // namespace tvm_codl
