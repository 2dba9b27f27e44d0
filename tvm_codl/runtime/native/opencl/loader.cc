// The OpenCL entry points that the plugin uses, forwarded to a library that is found at run time.
//
// A phone's vendor library is missing at link time, and pip's OpenCL loader has another name, so nothing links against
// libOpenCL.  CODL_OPENCL_LIBRARY names it; otherwise the usual names are tried.  Some calls do more than forward:
// - Launches and buffer releases go to this thread's LaunchRecorder while one is active.
// - The first platform query runs with the affinity of CODL_GPU_CORES, which the driver's worker threads inherit.
//   Otherwise a CPU driver's workers would share the core of the calling thread.
// - Kernels are compiled under one name (kernel_names.h).
#include <CL/cl.h>
#include <dlfcn.h>

#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <string>

#include "affinity.h"
#include "kernel_names.h"
#include "launch_recorder.h"

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

}  // namespace

#define FORWARD(RESULT, NAME, PARAMS, ARGS)                                                  \
  extern "C" CL_API_ENTRY RESULT CL_API_CALL NAME PARAMS {                                   \
    static auto* const entry = reinterpret_cast<RESULT(CL_API_CALL*) PARAMS>(Symbol(#NAME)); \
    return entry ARGS;                                                                       \
  }

extern "C" CL_API_ENTRY cl_int CL_API_CALL clGetPlatformIDs(cl_uint n, cl_platform_id* ids, cl_uint* count) {
  static auto* const entry = reinterpret_cast<decltype(&clGetPlatformIDs)>(Symbol("clGetPlatformIDs"));
  PinDriver();
  return entry(n, ids, count);
}

extern "C" CL_API_ENTRY cl_context CL_API_CALL
clCreateContext(const cl_context_properties* properties, cl_uint n, const cl_device_id* devices,
                void(CL_CALLBACK* notify)(const char*, const void*, size_t, void*), void* data, cl_int* error) {
  static auto* const entry = reinterpret_cast<decltype(&clCreateContext)>(Symbol("clCreateContext"));
  cl_context context = entry(properties, n, devices, notify, data, error);
  UnpinDriver();
  return context;
}

extern "C" CL_API_ENTRY cl_int CL_API_CALL clSetKernelArg(cl_kernel kernel, cl_uint index, size_t size,
                                                          const void* value) {
  static auto* const entry = reinterpret_cast<decltype(&clSetKernelArg)>(Symbol("clSetKernelArg"));
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
  static auto* const entry = reinterpret_cast<decltype(&clEnqueueNDRangeKernel)>(Symbol("clEnqueueNDRangeKernel"));
  if (auto* recorder = tvm_codl::LaunchRecorder::Current()) {
    recorder->Launch(kernel, dims, global, local);
    return CL_SUCCESS;
  }
  return entry(queue, kernel, dims, offset, global, local, waits, wait_list, event);
}

extern "C" CL_API_ENTRY cl_program CL_API_CALL clCreateProgramWithSource(cl_context context, cl_uint count,
                                                                         const char** strings, const size_t* lengths,
                                                                         cl_int* error) {
  static auto* const entry =
      reinterpret_cast<decltype(&clCreateProgramWithSource)>(Symbol("clCreateProgramWithSource"));
  if (count != 1) return entry(context, count, strings, lengths, error);
  std::string source = lengths != nullptr && lengths[0] != 0 ? std::string(strings[0], lengths[0]) : strings[0];
  std::string name = tvm_codl::UseCommonName(&source);
  const char* text = source.c_str();
  const size_t length = source.size();
  cl_program program = entry(context, 1, &text, &length, error);
  if (program != nullptr && !name.empty()) tvm_codl::KernelNames::Global().Add(program, std::move(name));
  return program;
}

extern "C" CL_API_ENTRY cl_kernel CL_API_CALL clCreateKernel(cl_program program, const char* name, cl_int* error) {
  static auto* const entry = reinterpret_cast<decltype(&clCreateKernel)>(Symbol("clCreateKernel"));
  return entry(program, tvm_codl::KernelNames::Global().NameIn(program, name), error);
}

extern "C" CL_API_ENTRY cl_int CL_API_CALL clReleaseProgram(cl_program program) {
  static auto* const entry = reinterpret_cast<decltype(&clReleaseProgram)>(Symbol("clReleaseProgram"));
  // TVM's module releases a program once, at its end; a later program may have the same address.
  tvm_codl::KernelNames::Global().Remove(program);
  return entry(program);
}

extern "C" CL_API_ENTRY cl_int CL_API_CALL clReleaseMemObject(cl_mem mem) {
  static auto* const entry = reinterpret_cast<decltype(&clReleaseMemObject)>(Symbol("clReleaseMemObject"));
  if (auto* recorder = tvm_codl::LaunchRecorder::Current()) {
    recorder->Release(mem);
    return CL_SUCCESS;
  }
  return entry(mem);
}

using BuildNotify = void(CL_CALLBACK*)(cl_program, void*);
using EventNotify = void(CL_CALLBACK*)(cl_event, cl_int, void*);

FORWARD(cl_int, clGetPlatformInfo, (cl_platform_id p, cl_platform_info k, size_t n, void* v, size_t* r),
        (p, k, n, v, r))
FORWARD(cl_int, clGetDeviceIDs, (cl_platform_id p, cl_device_type t, cl_uint n, cl_device_id* d, cl_uint* r),
        (p, t, n, d, r))
FORWARD(cl_int, clGetDeviceInfo, (cl_device_id d, cl_device_info k, size_t n, void* v, size_t* r), (d, k, n, v, r))
FORWARD(cl_int, clReleaseContext, (cl_context c), (c))
FORWARD(cl_command_queue, clCreateCommandQueue,
        (cl_context c, cl_device_id d, cl_command_queue_properties p, cl_int* e), (c, d, p, e))
FORWARD(cl_int, clReleaseCommandQueue, (cl_command_queue q), (q))
FORWARD(cl_int, clGetCommandQueueInfo, (cl_command_queue q, cl_command_queue_info k, size_t n, void* v, size_t* r),
        (q, k, n, v, r))
FORWARD(cl_mem, clCreateBuffer, (cl_context c, cl_mem_flags f, size_t n, void* h, cl_int* e), (c, f, n, h, e))
FORWARD(cl_mem, clCreateSubBuffer, (cl_mem m, cl_mem_flags f, cl_buffer_create_type t, const void* i, cl_int* e),
        (m, f, t, i, e))
FORWARD(cl_mem, clCreateImage,
        (cl_context c, cl_mem_flags f, const cl_image_format* i, const cl_image_desc* d, void* h, cl_int* e),
        (c, f, i, d, h, e))
FORWARD(cl_int, clRetainMemObject, (cl_mem m), (m))
FORWARD(cl_int, clGetMemObjectInfo, (cl_mem m, cl_mem_info k, size_t n, void* v, size_t* r), (m, k, n, v, r))
FORWARD(cl_int, clGetImageInfo, (cl_mem m, cl_image_info k, size_t n, void* v, size_t* r), (m, k, n, v, r))
FORWARD(cl_program, clCreateProgramWithBinary,
        (cl_context c, cl_uint n, const cl_device_id* d, const size_t* l, const unsigned char** b, cl_int* s,
         cl_int* e),
        (c, n, d, l, b, s, e))
FORWARD(cl_int, clBuildProgram, (cl_program p, cl_uint n, const cl_device_id* d, const char* o, BuildNotify f, void* u),
        (p, n, d, o, f, u))
FORWARD(cl_int, clGetProgramInfo, (cl_program p, cl_program_info k, size_t n, void* v, size_t* r), (p, k, n, v, r))
FORWARD(cl_int, clGetProgramBuildInfo,
        (cl_program p, cl_device_id d, cl_program_build_info k, size_t n, void* v, size_t* r), (p, d, k, n, v, r))
FORWARD(cl_int, clGetKernelInfo, (cl_kernel k, cl_kernel_info i, size_t n, void* v, size_t* r), (k, i, n, v, r))
FORWARD(cl_int, clGetKernelWorkGroupInfo,
        (cl_kernel k, cl_device_id d, cl_kernel_work_group_info i, size_t n, void* v, size_t* r), (k, d, i, n, v, r))
FORWARD(cl_int, clReleaseKernel, (cl_kernel k), (k))
FORWARD(cl_int, clSetKernelArgSVMPointer, (cl_kernel k, cl_uint i, const void* v), (k, i, v))
FORWARD(void*, clSVMAlloc, (cl_context c, cl_svm_mem_flags f, size_t n, cl_uint a), (c, f, n, a))
FORWARD(void, clSVMFree, (cl_context c, void* p), (c, p))
FORWARD(cl_int, clEnqueueSVMMemcpy,
        (cl_command_queue q, cl_bool b, void* d, const void* s, size_t n, cl_uint c, const cl_event* w, cl_event* e),
        (q, b, d, s, n, c, w, e))
FORWARD(cl_int, clFlush, (cl_command_queue q), (q))
FORWARD(cl_int, clFinish, (cl_command_queue q), (q))
FORWARD(cl_int, clWaitForEvents, (cl_uint n, const cl_event* e), (n, e))
FORWARD(cl_int, clGetEventInfo, (cl_event e, cl_event_info k, size_t n, void* v, size_t* r), (e, k, n, v, r))
FORWARD(cl_int, clGetEventProfilingInfo, (cl_event e, cl_profiling_info k, size_t n, void* v, size_t* r),
        (e, k, n, v, r))
FORWARD(cl_event, clCreateUserEvent, (cl_context c, cl_int* e), (c, e))
FORWARD(cl_int, clSetUserEventStatus, (cl_event e, cl_int s), (e, s))
FORWARD(cl_int, clSetEventCallback, (cl_event e, cl_int t, EventNotify f, void* u), (e, t, f, u))
FORWARD(cl_int, clRetainEvent, (cl_event e), (e))
FORWARD(cl_int, clReleaseEvent, (cl_event e), (e))
FORWARD(cl_int, clEnqueueMarkerWithWaitList, (cl_command_queue q, cl_uint n, const cl_event* w, cl_event* e),
        (q, n, w, e))
FORWARD(cl_int, clEnqueueBarrierWithWaitList, (cl_command_queue q, cl_uint n, const cl_event* w, cl_event* e),
        (q, n, w, e))
FORWARD(cl_int, clEnqueueReadBuffer,
        (cl_command_queue q, cl_mem m, cl_bool b, size_t o, size_t n, void* h, cl_uint c, const cl_event* w,
         cl_event* e),
        (q, m, b, o, n, h, c, w, e))
FORWARD(cl_int, clEnqueueWriteBuffer,
        (cl_command_queue q, cl_mem m, cl_bool b, size_t o, size_t n, const void* h, cl_uint c, const cl_event* w,
         cl_event* e),
        (q, m, b, o, n, h, c, w, e))
FORWARD(cl_int, clEnqueueCopyBuffer,
        (cl_command_queue q, cl_mem s, cl_mem d, size_t a, size_t b, size_t n, cl_uint c, const cl_event* w,
         cl_event* e),
        (q, s, d, a, b, n, c, w, e))
FORWARD(void*, clEnqueueMapBuffer,
        (cl_command_queue q, cl_mem m, cl_bool b, cl_map_flags f, size_t o, size_t n, cl_uint c, const cl_event* w,
         cl_event* e, cl_int* r),
        (q, m, b, f, o, n, c, w, e, r))
FORWARD(cl_int, clEnqueueUnmapMemObject,
        (cl_command_queue q, cl_mem m, void* p, cl_uint c, const cl_event* w, cl_event* e), (q, m, p, c, w, e))
FORWARD(cl_int, clEnqueueReadImage,
        (cl_command_queue q, cl_mem m, cl_bool b, const size_t* o, const size_t* r, size_t rp, size_t sp, void* h,
         cl_uint c, const cl_event* w, cl_event* e),
        (q, m, b, o, r, rp, sp, h, c, w, e))
FORWARD(cl_int, clEnqueueWriteImage,
        (cl_command_queue q, cl_mem m, cl_bool b, const size_t* o, const size_t* r, size_t rp, size_t sp, const void* h,
         cl_uint c, const cl_event* w, cl_event* e),
        (q, m, b, o, r, rp, sp, h, c, w, e))
FORWARD(cl_int, clEnqueueCopyImage,
        (cl_command_queue q, cl_mem s, cl_mem d, const size_t* a, const size_t* b, const size_t* r, cl_uint c,
         const cl_event* w, cl_event* e),
        (q, s, d, a, b, r, c, w, e))
FORWARD(cl_int, clEnqueueCopyImageToBuffer,
        (cl_command_queue q, cl_mem s, cl_mem d, const size_t* a, const size_t* r, size_t o, cl_uint c,
         const cl_event* w, cl_event* e),
        (q, s, d, a, r, o, c, w, e))
FORWARD(cl_int, clEnqueueCopyBufferToImage,
        (cl_command_queue q, cl_mem s, cl_mem d, size_t o, const size_t* a, const size_t* r, cl_uint c,
         const cl_event* w, cl_event* e),
        (q, s, d, o, a, r, c, w, e))
