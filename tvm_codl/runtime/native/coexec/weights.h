// A library's weights, held once in each memory that needs them, shared by all its executors.
#ifndef TVM_CODL_COEXEC_WEIGHTS_H_
#define TVM_CODL_COEXEC_WEIGHTS_H_

#include <tvm/runtime/ndarray.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cl_handle.h"
#include "device.h"

namespace tvm_codl {

// Thread-safe.  Places stay valid as long as the store lives.
class WeightStore {
 public:
  using Named = std::pair<std::string, tvm::runtime::NDArray>;

  // Where a weight may lie on an OpenCL device.
  enum class Form {
    kDevice,    // in a buffer that only the GPU reads
    kMappable,  // in a host-visible buffer, which stays mapped so that the CPU reads it too
    kSvm,       // in shared virtual memory
  };
  struct Place {
    cl_mem mem = nullptr;
    void* address = nullptr;  // the CPU's; null for kDevice
  };

  // The arrays are the CPU's, and compact.
  explicit WeightStore(std::vector<Named> weights);

  // All throw std::runtime_error for an unknown name and for a failure of the device.
  int64_t Bytes(const std::string& name) const;
  // In the CPU's memory: the loaded array or, if that was freed, a copy.
  tvm::runtime::NDArray OnHost(const std::string& name);
  // On a device; frees the CPU's array if nobody else holds it.
  Place OnDevice(const std::string& name, const OpenCLDevice& device, Form form);

  const std::vector<std::string>& names() const { return names_; }
  // Bytes held in all memories.
  int64_t HeldBytes() const;

 private:
  struct Copy {
    OpenCLDevice device;
    Mem mem;
    Svm svm;
    void* address = nullptr;
  };
  struct Weight {
    int64_t bytes = 0;
    DLDataType dtype{};
    std::vector<int64_t> shape;
    tvm::runtime::NDArray host;
    std::map<std::pair<cl_context, Form>, Copy> copies;
  };

  Weight& Find(const std::string& name);
  void ReadBack(Weight* weight);
  static void Write(const Weight& weight, Form form, Copy* copy);

  std::vector<std::string> names_;  // in the library's order
  std::map<std::string, Weight> weights_;
  mutable std::mutex mutex_;
};

}  // namespace tvm_codl

#endif  // TVM_CODL_COEXEC_WEIGHTS_H_
