// Which of OpenCL's built-in functions a kernel calls.
//
// PoCL reads all declarations before each kernel, which takes longer than a small kernel.  The reference phone's copy
// of that header (runtime/builtins.py) leaves out those whose names no option mentions.
#ifndef TVM_CODL_OPENCL_CALLED_NAMES_H_
#define TVM_CODL_OPENCL_CALLED_NAMES_H_

#include <string>

namespace tvm_codl {

// Build options that name what `source` calls, its own functions and what only looks like a call among them.
std::string CallOptions(const std::string& source);

}  // namespace tvm_codl

#endif  // TVM_CODL_OPENCL_CALLED_NAMES_H_
