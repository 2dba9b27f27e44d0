// One OpenCL program per source and process.
//
// Libraries of one network share most of their kernels, and a driver that has a kernel in its own cache reads and
// preprocesses the source all the same: PoCL takes 70 ms for each.
#ifndef TVM_CODL_OPENCL_PROGRAMS_H_
#define TVM_CODL_OPENCL_PROGRAMS_H_

#include <CL/cl.h>

#include <string>

namespace tvm_codl {

// The built program of `source`, retained for one more user, or null.
cl_program FindProgram(cl_context context, const std::string& source);
// Notes a new program of one user, whose only kernel has the common name.
void AddProgram(cl_context context, const std::string& source, cl_program program);
// Keeps a program that is built now, for as long as few others are used after it.  Returns a program that has to go for
// it, which the caller releases, or null.  TVM creates a program before it says for which device, so those of a context
// of several devices are not kept.
cl_program KeepProgram(cl_program program);
// One user less.
void LeaveProgram(cl_program program);

bool HasCommonName(cl_program program);
// The source of a program that has the common name; of another one nothing.
std::string SourceOf(cl_program program);
bool IsKept(cl_program program);

}  // namespace tvm_codl

#endif  // TVM_CODL_OPENCL_PROGRAMS_H_
