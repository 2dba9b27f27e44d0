#include "device.h"

#include <opencl_common.h>

#include <stdexcept>
#include <string>

namespace tvm_codl {

OpenCLDevice FindDevice(int id) {
  auto* workspace = tvm::runtime::cl::OpenCLWorkspace::Global();
  workspace->Init();
  if (id < 0 || static_cast<size_t>(id) >= workspace->devices.size()) {
    throw std::runtime_error("there is no OpenCL device " + std::to_string(id) + " of version 1.2 or later");
  }
  const cl_device_id device = workspace->devices[static_cast<size_t>(id)];
  return {workspace->contexts[workspace->device_to_platform[device]], device, id};
}

}  // namespace tvm_codl
