// The GPU's facts, from OpenCL; the same queries as tvm_codl/device/facts.py makes.
#include <opencl_common.h>

#include <cstdlib>

#include "coexec/cl_handle.h"
#include "facts.h"
#include "log.h"
#include "opencl/affinity.h"

namespace codl_server {

namespace {

using Program = tvm_codl::ClHandle<cl_program, clReleaseProgram>;

// By number, as headers may be older than the query: CL_DEVICE_PREFERRED_WORK_GROUP_SIZE_MULTIPLE of OpenCL 3.0,
// NVIDIA's warp, AMD's wavefront.
constexpr cl_device_info kWaves[] = {0x1067, 0x4003, 0x4043};
const char* kSource = "__kernel void scale(__global float* x) { x[get_global_id(0)] *= 2.0f; }";

std::string GetText(cl_device_id device, cl_device_info what) {
  size_t size = 0;
  if (clGetDeviceInfo(device, what, 0, nullptr, &size) != CL_SUCCESS || size == 0) return "";
  std::string text(size, '\0');
  clGetDeviceInfo(device, what, size, text.data(), nullptr);
  text.resize(text.find_last_not_of(std::string(" \0\n", 3)) + 1);
  text.erase(0, text.find_first_not_of(' '));
  return text;
}

// 0 for what the device does not know.
uint64_t GetNumber(cl_device_id device, cl_device_info what) {
  uint64_t value = 0;  // OpenCL writes 4 or 8 bytes; little endian, either reads right
  return clGetDeviceInfo(device, what, sizeof(value), &value, nullptr) == CL_SUCCESS ? value : 0;
}

// The wave of a small kernel; 0 if it cannot be queried.
uint64_t GetKernelWave(cl_context context, cl_device_id device) {
  cl_int error = CL_SUCCESS;
  const Program program(clCreateProgramWithSource(context, 1, &kSource, nullptr, &error));
  if (!program || clBuildProgram(program.get(), 1, &device, nullptr, nullptr, nullptr) != CL_SUCCESS) return 0;
  const tvm_codl::Kernel kernel(clCreateKernel(program.get(), "scale", &error));
  size_t wave = 0;
  if (kernel) {
    error = clGetKernelWorkGroupInfo(kernel.get(), device, CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE, sizeof(wave),
                                     &wave, nullptr);
  }
  return error == CL_SUCCESS ? wave : 0;
}

uint64_t GetWave(cl_context context, cl_device_id device) {
  for (const cl_device_info what : kWaves) {
    if (const uint64_t wave = GetNumber(device, what)) return wave;
  }
  return GetKernelWave(context, device);
}

JsonObject DeviceFacts(cl_context context, cl_device_id device) {
  const auto number = [device](cl_device_info what) { return GetNumber(device, what); };
  const std::string name = GetText(device, CL_DEVICE_NAME);
  const std::string extensions = " " + GetText(device, CL_DEVICE_EXTENSIONS) + " ";
  const bool adreno = name.find("Adreno") != std::string::npos;
  const bool on_cpu = (number(CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CPU) != 0;
  const cpu_set_t cores = on_cpu ? tvm_codl::ParseCores(std::getenv("CODL_GPU_CORES")) : cpu_set_t{};
  const bool unified = number(CL_DEVICE_HOST_UNIFIED_MEMORY) != 0;
  const bool svm = (number(CL_DEVICE_SVM_CAPABILITIES) & CL_DEVICE_SVM_FINE_GRAIN_BUFFER) != 0;
  const bool images = number(CL_DEVICE_IMAGE_SUPPORT) != 0;
  const std::vector<uint64_t> image2d = {images ? number(CL_DEVICE_IMAGE2D_MAX_WIDTH) : 0,
                                         images ? number(CL_DEVICE_IMAGE2D_MAX_HEIGHT) : 0};
  return {
      {"gpu_name", Json(name)},
      {"gpu_target", Json(adreno ? "opencl -device=adreno" : "opencl -device=mali")},
      {"gpu_version", Json(GetText(device, CL_DEVICE_VERSION))},
      {"gpu_cores", Json(tvm_codl::ToCores(cores))},
      {"compute_units", Json(number(CL_DEVICE_MAX_COMPUTE_UNITS))},
      {"max_work_group", Json(number(CL_DEVICE_MAX_WORK_GROUP_SIZE))},
      {"local_memory", Json(number(CL_DEVICE_LOCAL_MEM_SIZE))},
      {"unified_memory", Json(unified)},
      {"float16", Json(extensions.find(" cl_khr_fp16 ") != std::string::npos)},
      {"global_mem_cache_size", Json(number(CL_DEVICE_GLOBAL_MEM_CACHE_SIZE))},
      {"kernel_wave_size", Json(GetWave(context, device))},
      {"gpu_mhz", Json(number(CL_DEVICE_MAX_CLOCK_FREQUENCY))},
      {"global_memory", Json(number(CL_DEVICE_GLOBAL_MEM_SIZE))},
      {"largest_buffer", Json(number(CL_DEVICE_MAX_MEM_ALLOC_SIZE))},
      {"vector_width", Json(number(CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT))},
      {"memory_kind", Json(!unified ? "discrete"
                           : svm    ? "svm"
                                    : "unified")},
      {"images", Json(images)},
      {"image2d", Json(image2d)},
      {"device_queues", Json(number(CL_DEVICE_MAX_ON_DEVICE_QUEUES))},
      {"device_queue_size", Json(number(CL_DEVICE_QUEUE_ON_DEVICE_MAX_SIZE))},
      {"device_events", Json(number(CL_DEVICE_MAX_ON_DEVICE_EVENTS))},
  };
}

}  // namespace

JsonObject GpuFacts() {
  try {
    auto* workspace = tvm::runtime::cl::OpenCLWorkspace::Global();
    workspace->Init();
    if (!workspace->devices.empty()) {
      const cl_device_id device = workspace->devices.front();
      return DeviceFacts(workspace->contexts[workspace->device_to_platform[device]], device);
    }
  } catch (const std::exception& error) {
    Log(std::string("no OpenCL: ") + error.what());
  }
  return {{"gpu_name", Json("")}, {"gpu_target", Json("")}, {"unified_memory", Json(false)}};
}

}  // namespace codl_server
