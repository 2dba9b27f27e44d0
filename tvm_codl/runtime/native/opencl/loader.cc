// The OpenCL entry points that the plugin uses, forwarded to a library that is found at run time.
//
// A phone's vendor library is missing at link time, and pip's OpenCL loader has another name, so nothing links against
// libOpenCL.  CODL_OPENCL_LIBRARY names it; otherwise the usual names are tried.  Some calls do more than forward:
// - Launches and buffer releases go to this thread's LaunchRecorder while one is active.
// - The first platform query runs with the affinity of CODL_GPU_CORES, which the driver's worker threads inherit.
//   Otherwise a CPU driver's workers would share the core of the calling thread.
// - Kernels are compiled under one name (kernel_names.h), and one source is built once (programs.h).
// - Where CODL_OPENCL_CALLS is set, a kernel is built with the names that it calls as options (called_names.h).
#include <CL/cl.h>
#include <dlfcn.h>

#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <string>
#include <tuple>

#include "affinity.h"
#include "called_names.h"
#include "kernel_names.h"
#include "launch_recorder.h"
#include "programs.h"

namespace {

void* OpenLibrary() {
  if (const char* named = std::getenv("CODL_OPENCL_LIBRARY")) {
    if (void* handle = dlopen(named, RTLD_NOW | RTLD_LOCAL)) return handle;
    throw std::runtime_error(std::string("CODL_OPENCL_LIBRARY does not load: ") + dlerror());
  }
  for (const char* name :
       {"libOpenCL.so", "libOpenCL.so.1", "/system/vendor/lib64/libOpenCL.so", "/system/lib64/libOpenCL.so",
        "/system/vendor/lib64/egl/libGLES_mali.so", "/system/vendor/lib64/libPVROCL.so"}) {
    if (void* handle = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return handle;
  }
  throw std::runtime_error("no OpenCL library found: `tvm-codl doctor` says how to get one");
}

void* Symbol(const char* name) {
  static void* library = OpenLibrary();
  void* symbol = dlsym(library, name);
  if (symbol == nullptr) throw std::runtime_error(std::string("the OpenCL library lacks ") + name);
  return symbol;
}

// The affinity for the driver's threads holds from the first platform query to the first context.
std::once_flag pin_once;
tvm_codl::ScopedAffinity* pinned = nullptr;
void PinDriver() {
  std::call_once(pin_once, [] {
    const cpu_set_t cores = tvm_codl::ParseCores(std::getenv("CODL_GPU_CORES"));
    if (CPU_COUNT(&cores) == 0) return;
    // Otherwise PoCL starts a worker for every core of the machine, and they crowd on these.
    setenv("POCL_MAX_PTHREAD_COUNT", std::to_string(CPU_COUNT(&cores)).c_str(), 0);
    pinned = new tvm_codl::ScopedAffinity(cores);
  });
}
void UnpinDriver() {
  delete pinned;
  pinned = nullptr;
}

template <typename Function>
struct Signature;
template <typename R, typename... P>
struct Signature<R(P...)> {
  using Result = R;
  template <size_t i>
  using Parameter = std::tuple_element_t<i, std::tuple<P...>>;
};

}  // namespace

// The library's own function NAME.
#define ENTRY(NAME) static auto* const entry = reinterpret_cast<decltype(&NAME)>(Symbol(#NAME))

static cl_int ReleaseInDriver(cl_program program) {
  ENTRY(clReleaseProgram);
  return entry(program);
}

extern "C" CL_API_ENTRY cl_int CL_API_CALL clGetPlatformIDs(cl_uint n, cl_platform_id* ids, cl_uint* count) {
  ENTRY(clGetPlatformIDs);
  PinDriver();
  return entry(n, ids, count);
}

extern "C" CL_API_ENTRY cl_context CL_API_CALL
clCreateContext(const cl_context_properties* properties, cl_uint n, const cl_device_id* devices,
                void(CL_CALLBACK* notify)(const char*, const void*, size_t, void*), void* data, cl_int* error) {
  ENTRY(clCreateContext);
  cl_context context = entry(properties, n, devices, notify, data, error);
  UnpinDriver();
  return context;
}

extern "C" CL_API_ENTRY cl_int CL_API_CALL clSetKernelArg(cl_kernel kernel, cl_uint index, size_t size,
                                                          const void* value) {
  ENTRY(clSetKernelArg);
  if (auto* recorder = tvm_codl::LaunchRecorder::Current()) {
    recorder->SetArg(kernel, index, size, value);
    return CL_SUCCESS;
  }
  return entry(kernel, index, size, value);
}

extern "C" CL_API_ENTRY cl_int CL_API_CALL clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel,
                                                                  cl_uint dims, const size_t* offset,
                                                                  const size_t* global, const size_t* local,
                                                                  cl_uint waits, const cl_event* wait_list,
                                                                  cl_event* event) {
  ENTRY(clEnqueueNDRangeKernel);
  if (auto* recorder = tvm_codl::LaunchRecorder::Current()) {
    recorder->Launch(kernel, dims, global, local);
    return CL_SUCCESS;
  }
  return entry(queue, kernel, dims, offset, global, local, waits, wait_list, event);
}

extern "C" CL_API_ENTRY cl_program CL_API_CALL clCreateProgramWithSource(cl_context context, cl_uint count,
                                                                         const char** strings, const size_t* lengths,
                                                                         cl_int* error) {
  ENTRY(clCreateProgramWithSource);
  if (count != 1) return entry(context, count, strings, lengths, error);
  std::string source = lengths != nullptr && lengths[0] != 0 ? std::string(strings[0], lengths[0]) : strings[0];
  const bool renamed = tvm_codl::UseCommonName(&source);
  if (cl_program built = renamed ? tvm_codl::FindProgram(context, source) : nullptr) {
    if (error != nullptr) *error = CL_SUCCESS;
    return built;
  }
  const char* text = source.c_str();
  const size_t length = source.size();
  cl_program program = entry(context, 1, &text, &length, error);
  if (program != nullptr && renamed) tvm_codl::AddProgram(context, source, program);
  return program;
}

extern "C" CL_API_ENTRY cl_int CL_API_CALL clBuildProgram(cl_program program, cl_uint n, const cl_device_id* devices,
                                                          const char* options,
                                                          void(CL_CALLBACK* notify)(cl_program, void*), void* data) {
  ENTRY(clBuildProgram);
  const bool shared = options == nullptr;  // as TVM builds them
  if (shared && tvm_codl::IsKept(program)) return CL_SUCCESS;
  std::string calls;
  if (shared && std::getenv("CODL_OPENCL_CALLS") != nullptr && tvm_codl::HasCommonName(program)) {
    calls = tvm_codl::CallOptions(tvm_codl::SourceOf(program));
    options = calls.c_str();
  }
  const cl_int status = entry(program, n, devices, options, notify, data);
  if (status != CL_SUCCESS || !shared) return status;
  if (cl_program gone = tvm_codl::KeepProgram(program)) return ReleaseInDriver(gone);
  return status;
}

extern "C" CL_API_ENTRY cl_kernel CL_API_CALL clCreateKernel(cl_program program, const char* name, cl_int* error) {
  ENTRY(clCreateKernel);
  return entry(program, tvm_codl::HasCommonName(program) ? tvm_codl::kCommonName : name, error);
}

extern "C" CL_API_ENTRY cl_int CL_API_CALL clReleaseProgram(cl_program program) {
  tvm_codl::LeaveProgram(program);
  return ReleaseInDriver(program);
}

extern "C" CL_API_ENTRY cl_int CL_API_CALL clReleaseMemObject(cl_mem mem) {
  ENTRY(clReleaseMemObject);
  if (auto* recorder = tvm_codl::LaunchRecorder::Current()) {
    recorder->Release(mem);
    return CL_SUCCESS;
  }
  return entry(mem);
}

// The rest is only forwarded: FORWARD(function, number of its parameters), whose types come from its declaration.
#define PARAMETER(F, I) Signature<decltype(F)>::Parameter<I> a##I
#define ARGUMENT(F, I) a##I
#define LIST1(X, F) X(F, 0)
#define LIST2(X, F) LIST1(X, F), X(F, 1)
#define LIST3(X, F) LIST2(X, F), X(F, 2)
#define LIST4(X, F) LIST3(X, F), X(F, 3)
#define LIST5(X, F) LIST4(X, F), X(F, 4)
#define LIST6(X, F) LIST5(X, F), X(F, 5)
#define LIST7(X, F) LIST6(X, F), X(F, 6)
#define LIST8(X, F) LIST7(X, F), X(F, 7)
#define LIST9(X, F) LIST8(X, F), X(F, 8)
#define LIST10(X, F) LIST9(X, F), X(F, 9)
#define LIST11(X, F) LIST10(X, F), X(F, 10)
#define FORWARD(NAME, N)                                                                                 \
  extern "C" CL_API_ENTRY Signature<decltype(NAME)>::Result CL_API_CALL NAME(LIST##N(PARAMETER, NAME)) { \
    ENTRY(NAME);                                                                                         \
    return entry(LIST##N(ARGUMENT, NAME));                                                               \
  }

FORWARD(clGetPlatformInfo, 5)
FORWARD(clGetDeviceIDs, 5)
FORWARD(clGetDeviceInfo, 5)
FORWARD(clReleaseContext, 1)
FORWARD(clGetContextInfo, 5)
FORWARD(clCreateCommandQueue, 4)
FORWARD(clReleaseCommandQueue, 1)
FORWARD(clGetCommandQueueInfo, 5)
FORWARD(clCreateBuffer, 5)
FORWARD(clCreateSubBuffer, 5)
FORWARD(clCreateImage, 6)
FORWARD(clRetainMemObject, 1)
FORWARD(clGetMemObjectInfo, 5)
FORWARD(clGetImageInfo, 5)
FORWARD(clCreateProgramWithBinary, 7)
FORWARD(clRetainProgram, 1)
FORWARD(clGetProgramInfo, 5)
FORWARD(clGetProgramBuildInfo, 6)
FORWARD(clGetKernelInfo, 5)
FORWARD(clGetKernelWorkGroupInfo, 6)
FORWARD(clReleaseKernel, 1)
FORWARD(clSetKernelArgSVMPointer, 3)
FORWARD(clSVMAlloc, 4)
FORWARD(clSVMFree, 2)
FORWARD(clEnqueueSVMMemcpy, 8)
FORWARD(clFlush, 1)
FORWARD(clFinish, 1)
FORWARD(clWaitForEvents, 2)
FORWARD(clGetEventInfo, 5)
FORWARD(clGetEventProfilingInfo, 5)
FORWARD(clCreateUserEvent, 2)
FORWARD(clSetUserEventStatus, 2)
FORWARD(clSetEventCallback, 4)
FORWARD(clRetainEvent, 1)
FORWARD(clReleaseEvent, 1)
FORWARD(clEnqueueNativeKernel, 10)
FORWARD(clEnqueueMarkerWithWaitList, 4)
FORWARD(clEnqueueBarrierWithWaitList, 4)
FORWARD(clEnqueueReadBuffer, 9)
FORWARD(clEnqueueWriteBuffer, 9)
FORWARD(clEnqueueCopyBuffer, 9)
FORWARD(clEnqueueMapBuffer, 10)
FORWARD(clEnqueueUnmapMemObject, 6)
FORWARD(clEnqueueReadImage, 11)
FORWARD(clEnqueueWriteImage, 11)
FORWARD(clEnqueueCopyImage, 9)
FORWARD(clEnqueueCopyImageToBuffer, 9)
FORWARD(clEnqueueCopyBufferToImage, 9)
