// Counts what an OpenCL library builds, and keeps the last options: stands before it as CODL_OPENCL_LIBRARY, and
// everything else is found in the library behind it.
#include <CL/cl.h>
#include <dlfcn.h>

#include <atomic>
#include <string>

namespace {
std::atomic<long> builds{0};
std::string last_options;
}  // namespace

extern "C" long counted_builds() { return builds; }
extern "C" const char* options_of_build() { return last_options.c_str(); }

extern "C" cl_int clBuildProgram(cl_program program, cl_uint n, const cl_device_id* devices, const char* options,
                                 void (*notify)(cl_program, void*), void* data) {
  static auto* const entry = reinterpret_cast<decltype(&clBuildProgram)>(dlsym(RTLD_NEXT, "clBuildProgram"));
  ++builds;
  last_options = options == nullptr ? "" : options;
  return entry(program, n, devices, options, notify, data);
}
