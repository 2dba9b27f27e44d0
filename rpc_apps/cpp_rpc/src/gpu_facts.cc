// The GPU's facts, from OpenCL; the same queries as tvm_codl/device/facts.py makes.
#include <CL/cl.h>
#include <dlfcn.h>
#include <tvm/runtime/device_api.h>

#include <cstdlib>
#include <initializer_list>

#include "facts.h"
#include "log.h"

namespace codl_server {

namespace {

// Named by a number where the headers are older than the query: CL_DEVICE_PREFERRED_WORK_GROUP_SIZE_MULTIPLE of
// OpenCL 3.0, NVIDIA's warp, AMD's wavefront.
constexpr cl_device_info kWaves[] = {0x1067, 0x4003, 0x4043};
constexpr const char* kSource = "__kernel void scale(__global float* x) { x[get_global_id(0)] *= 2.0f; }";

// The first GPU of the first platform that has one, else the first CPU, else the first accelerator.
cl_device_id FirstDevice() {
  cl_platform_id platforms[16];
  cl_uint count = 0;
  if (clGetPlatformIDs(16, platforms, &count) != CL_SUCCESS) return nullptr;
  for (cl_device_type kind : {CL_DEVICE_TYPE_GPU, CL_DEVICE_TYPE_CPU, CL_DEVICE_TYPE_ACCELERATOR}) {
    for (cl_uint i = 0; i < count && i < 16; ++i) {
      cl_device_id device = nullptr;
      if (clGetDeviceIDs(platforms[i], kind, 1, &device, nullptr) == CL_SUCCESS) return device;
    }
  }
  return nullptr;
}

std::string TextOf(cl_device_id device, cl_device_info what) {
  size_t size = 0;
  if (clGetDeviceInfo(device, what, 0, nullptr, &size) != CL_SUCCESS || size == 0) return "";
  std::string text(size, '\0');
  clGetDeviceInfo(device, what, size, text.data(), nullptr);
  text.resize(text.find_last_not_of(std::string(" \0\n", 3)) + 1);
  text.erase(0, text.find_first_not_of(' '));
  return text;
}

// 0 for what the device does not know.
uint64_t NumberOf(cl_device_id device, cl_device_info what) {
  uint64_t value = 0;  // OpenCL writes 4 or 8 bytes; little endian, either reads right
  return clGetDeviceInfo(device, what, sizeof(value), &value, nullptr) == CL_SUCCESS ? value : 0;
}

// The one entry point that the co-executor does not need and forward.  The library is loaded already.
decltype(&clGetKernelWorkGroupInfo) KernelWorkGroupInfo() {
  const char* named = std::getenv("CODL_OPENCL_LIBRARY");
  for (const char* name :
       {named, "libOpenCL.so", "libOpenCL.so.1", "/system/vendor/lib64/libOpenCL.so", "/system/lib64/libOpenCL.so",
        "/system/vendor/lib64/egl/libGLES_mali.so", "/system/vendor/lib64/libPVROCL.so"}) {
    if (name == nullptr) continue;
    if (void* library = dlopen(name, RTLD_NOW | RTLD_NOLOAD)) {
      return reinterpret_cast<decltype(&clGetKernelWorkGroupInfo)>(dlsym(library, "clGetKernelWorkGroupInfo"));
    }
  }
  return nullptr;
}

// The wave of a small kernel; 0 where it cannot be asked.
uint64_t KernelWave(cl_device_id device) {
  auto* const ask = KernelWorkGroupInfo();
  if (ask == nullptr) return 0;
  cl_int error = CL_SUCCESS;
  size_t wave = 0;
  cl_context context = clCreateContext(nullptr, 1, &device, nullptr, nullptr, &error);
  if (context == nullptr) return 0;
  if (cl_program program = clCreateProgramWithSource(context, 1, const_cast<const char**>(&kSource), nullptr, &error)) {
    if (clBuildProgram(program, 1, &device, nullptr, nullptr, nullptr) == CL_SUCCESS) {
      if (cl_kernel kernel = clCreateKernel(program, "scale", &error)) {
        if (ask(kernel, device, CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE, sizeof(wave), &wave, nullptr)) wave = 0;
        clReleaseKernel(kernel);
      }
    }
    clReleaseProgram(program);
  }
  clReleaseContext(context);
  return wave;
}

uint64_t WaveOf(cl_device_id device) {
  for (const cl_device_info what : kWaves) {
    if (const uint64_t wave = NumberOf(device, what)) return wave;
  }
  return KernelWave(device);
}

GpuFacts Ask() {
  GpuFacts facts;
  // TVM first: while it starts OpenCL, the driver's threads are given the GPU's cores (opencl/loader.cc).
  tvm::runtime::TVMRetValue exists;
  const tvm::Device first{kDLOpenCL, 0};
  tvm::runtime::DeviceAPI::Get(first)->GetAttr(first, tvm::runtime::kExist, &exists);
  cl_device_id device = FirstDevice();
  if (exists.operator int() == 0 || device == nullptr) return facts;
  facts.found = true;
  facts.on_cpu = (NumberOf(device, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CPU) != 0;
  facts.name = TextOf(device, CL_DEVICE_NAME);
  facts.version = TextOf(device, CL_DEVICE_VERSION);
  facts.extensions = TextOf(device, CL_DEVICE_EXTENSIONS);
  facts.compute_units = NumberOf(device, CL_DEVICE_MAX_COMPUTE_UNITS);
  facts.max_work_group = NumberOf(device, CL_DEVICE_MAX_WORK_GROUP_SIZE);
  facts.local_memory = NumberOf(device, CL_DEVICE_LOCAL_MEM_SIZE);
  facts.cache = NumberOf(device, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE);
  facts.wave = WaveOf(device);
  facts.mhz = NumberOf(device, CL_DEVICE_MAX_CLOCK_FREQUENCY);
  facts.memory = NumberOf(device, CL_DEVICE_GLOBAL_MEM_SIZE);
  facts.largest_buffer = NumberOf(device, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
  facts.vector_width = NumberOf(device, CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT);
  facts.images = NumberOf(device, CL_DEVICE_IMAGE_SUPPORT) != 0;
  facts.image_width = facts.images ? NumberOf(device, CL_DEVICE_IMAGE2D_MAX_WIDTH) : 0;
  facts.image_height = facts.images ? NumberOf(device, CL_DEVICE_IMAGE2D_MAX_HEIGHT) : 0;
  facts.device_queues = NumberOf(device, CL_DEVICE_MAX_ON_DEVICE_QUEUES);
  facts.device_queue_size = NumberOf(device, CL_DEVICE_QUEUE_ON_DEVICE_MAX_SIZE);
  facts.device_events = NumberOf(device, CL_DEVICE_MAX_ON_DEVICE_EVENTS);
  facts.unified = NumberOf(device, CL_DEVICE_HOST_UNIFIED_MEMORY) != 0;
  const bool svm = (NumberOf(device, CL_DEVICE_SVM_CAPABILITIES) & CL_DEVICE_SVM_FINE_GRAIN_BUFFER) != 0;
  facts.memory_kind = !facts.unified ? "discrete" : svm ? "svm" : "unified";
  return facts;
}

}  // namespace

GpuFacts AskGpu() {
  try {
    return Ask();
  } catch (const std::exception& error) {
    Say(std::string("no OpenCL: ") + error.what());
    return {};
  }
}

}  // namespace codl_server
