// One name for all kernels, so that a driver's cache of compiled kernels hits across libraries.
//
// TVM names a kernel by its place in the network, and OpenCL drivers key their caches by the source text: the same
// kernel in another library would be compiled again.  A program of one kernel is compiled under a common name.
#ifndef TVM_CODL_OPENCL_KERNEL_NAMES_H_
#define TVM_CODL_OPENCL_KERNEL_NAMES_H_

#include <string>

namespace tvm_codl {

constexpr char kCommonName[] = "codl_kernel";

// Whether `c` may stand in a name.
bool InName(char c);
// Renames the only kernel of `source` to the common name.  Returns false, and leaves the source as it is, where it has
// no kernel or several.
bool UseCommonName(std::string* source);

}  // namespace tvm_codl

#endif  // TVM_CODL_OPENCL_KERNEL_NAMES_H_
