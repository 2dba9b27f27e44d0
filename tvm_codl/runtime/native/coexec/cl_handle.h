// OpenCL objects owned by a scope, and the check of every call's status.
#ifndef TVM_CODL_COEXEC_CL_HANDLE_H_
#define TVM_CODL_COEXEC_CL_HANDLE_H_

#include <CL/cl.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace tvm_codl {

inline void Check(cl_int status, const char* what) {
  if (status != CL_SUCCESS)
    throw std::runtime_error(std::string(what) + " failed with OpenCL error " + std::to_string(status));
}

template <typename T, cl_int(CL_API_CALL* Release)(T)>
class ClHandle {
 public:
  ClHandle() = default;
  explicit ClHandle(T object) : object_(object) {}
  ~ClHandle() { reset(); }
  ClHandle(ClHandle&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  ClHandle& operator=(ClHandle&& other) noexcept {
    if (this != &other) {
      reset();
      object_ = std::exchange(other.object_, nullptr);
    }
    return *this;
  }
  T get() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }
  void reset(T object = nullptr) {
    if (object_ != nullptr) Release(object_);
    object_ = object;
  }

 private:
  T object_ = nullptr;
};

using Mem = ClHandle<cl_mem, clReleaseMemObject>;
using Kernel = ClHandle<cl_kernel, clReleaseKernel>;
using Queue = ClHandle<cl_command_queue, clReleaseCommandQueue>;
using Event = ClHandle<cl_event, clReleaseEvent>;

inline Queue NewQueue(cl_context context, cl_device_id device, cl_command_queue_properties properties = 0) {
  cl_int status = CL_SUCCESS;
  Queue queue(clCreateCommandQueue(context, device, properties, &status));
  Check(status, "clCreateCommandQueue");
  return queue;
}

inline Mem NewBuffer(cl_context context, cl_mem_flags flags, size_t bytes) {
  cl_int status = CL_SUCCESS;
  Mem mem(clCreateBuffer(context, flags, bytes, nullptr, &status));
  Check(status, "clCreateBuffer");
  return mem;
}

struct FreeSvm {
  cl_context context = nullptr;
  void operator()(void* memory) const { clSVMFree(context, memory); }
};
using Svm = std::unique_ptr<void, FreeSvm>;

// Fine-grained shared virtual memory.
inline Svm AllocateSvm(cl_context context, size_t bytes) {
  constexpr cl_uint kAlignment = 128;  // the size of OpenCL's largest type
  Svm memory(clSVMAlloc(context, CL_MEM_READ_WRITE | CL_MEM_SVM_FINE_GRAIN_BUFFER, bytes, kAlignment), {context});
  if (!memory) throw std::runtime_error("no shared memory for " + std::to_string(bytes) + " bytes");
  return memory;
}

}  // namespace tvm_codl

#endif  // TVM_CODL_COEXEC_CL_HANDLE_H_
