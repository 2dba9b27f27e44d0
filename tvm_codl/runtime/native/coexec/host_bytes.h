// CPU memory with the alignment that compiled kernels need.
#ifndef TVM_CODL_COEXEC_HOST_BYTES_H_
#define TVM_CODL_COEXEC_HOST_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>

namespace tvm_codl {

// TVM's generated CPU code loads and stores vectors aligned to this (tvm::runtime::kAllocAlignment).
constexpr int64_t kCpuAlignment = 64;

struct FreeHostBytes {
  void operator()(uint8_t* memory) const { std::free(memory); }
};
using HostBytes = std::unique_ptr<uint8_t, FreeHostBytes>;

// Memory aligned to kCpuAlignment.  With posix_memalign, since Android has std::aligned_alloc only from API 28.
inline HostBytes AlignedBytes(size_t bytes) {
  void* memory = nullptr;
  if (posix_memalign(&memory, static_cast<size_t>(kCpuAlignment), bytes) != 0) {
    throw std::runtime_error("out of memory for a buffer of " + std::to_string(bytes) + " bytes");
  }
  return HostBytes(static_cast<uint8_t*>(memory));
}

}  // namespace tvm_codl

#endif  // TVM_CODL_COEXEC_HOST_BYTES_H_
