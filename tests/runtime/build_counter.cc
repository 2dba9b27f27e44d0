// Counts what an OpenCL library builds: stands before it as CODL_OPENCL_LIBRARY, and everything else is found in the
// library behind it.
#include <CL/cl.h>
#include <dlfcn.h>

#include <atomic>

namespace {
std::atomic<long> builds{0};
}

extern "C" long counted_builds() { return builds; }

extern "C" cl_int clBuildProgram(cl_program program, cl_uint n, const cl_device_id* devices, const char* options,
                                 void (*notify)(cl_program, void*), void* data) {
  static auto* const entry = reinterpret_cast<decltype(&clBuildProgram)>(dlsym(RTLD_NEXT, "clBuildProgram"));
  ++builds;
  return entry(program, n, devices, options, notify, data);
}
