// The OpenCL device that TVM's runtime found.
#ifndef TVM_CODL_COEXEC_DEVICE_H_
#define TVM_CODL_COEXEC_DEVICE_H_

#include <CL/cl.h>

namespace tvm_codl {

struct OpenCLDevice {
  cl_context context = nullptr;
  cl_device_id device = nullptr;
  int id = 0;
};

// Throws std::runtime_error where there is no device of that number.
OpenCLDevice FindDevice(int id);

template <typename T>
T Info(cl_device_id device, cl_device_info what) {
  T value{};
  // A driver older than the question answers with an error: that is a "no".
  if (clGetDeviceInfo(device, what, sizeof(value), &value, nullptr) != CL_SUCCESS) return T{};
  return value;
}

}  // namespace tvm_codl

#endif  // TVM_CODL_COEXEC_DEVICE_H_
