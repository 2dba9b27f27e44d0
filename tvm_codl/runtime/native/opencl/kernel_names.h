// One name for all kernels, so that a driver's cache of compiled kernels hits across libraries.
//
// TVM names a kernel by its place in the network, and OpenCL drivers key their caches by the source text: the same
// kernel in another library would be compiled again.  A program of one kernel is compiled under a common name.
#ifndef TVM_CODL_OPENCL_KERNEL_NAMES_H_
#define TVM_CODL_OPENCL_KERNEL_NAMES_H_

#include <CL/cl.h>

#include <string>

namespace tvm_codl {

// Renames the only kernel of `source` to the common name and returns its old name.  Leaves a source with no kernel or
// several as it is and returns "".
std::string UseCommonName(std::string* source);

// Notes the old name of a program's renamed kernel, until the program's release.
void AddOldName(cl_program program, std::string name);
void RemoveOldName(cl_program program);
// What `name`, as the user knows it, is called in `program`.
const char* NameIn(cl_program program, const char* name);

}  // namespace tvm_codl

#endif  // TVM_CODL_OPENCL_KERNEL_NAMES_H_
