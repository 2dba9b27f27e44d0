// Kernels without names, so that a driver's cache of compiled kernels knows them again.
//
// TVM names a kernel by its place in the network, and the caches of OpenCL drivers go by the source text: the same
// kernel in another library would be compiled anew.  Programs of one kernel are compiled under one common name.
#ifndef TVM_CODL_OPENCL_NAMELESS_H_
#define TVM_CODL_OPENCL_NAMELESS_H_

#include <CL/cl.h>

#include <map>
#include <mutex>
#include <string>

namespace tvm_codl {

// Gives the only kernel of `source` the common name, and returns the name that it had; leaves a source with no kernel
// or several as it is and returns "".
std::string MakeNameless(std::string* source);

class Nameless {
 public:
  static Nameless& Global();
  void Add(cl_program program, std::string name);
  void Remove(cl_program program);
  // The name under which `program` knows the kernel that its user calls `name`.
  const char* NameIn(cl_program program, const char* name);

 private:
  std::mutex mutex_;
  std::map<cl_program, std::string> names_;
};

}  // namespace tvm_codl

#endif  // TVM_CODL_OPENCL_NAMELESS_H_
