// Where a program's buffers live, and how the CPU's and the GPU's view of a shared one are brought together.
#ifndef TVM_CODL_COEXEC_MEMORY_H_
#define TVM_CODL_COEXEC_MEMORY_H_

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cl_handle.h"
#include "program.h"

namespace tvm_codl {

// TVM's generated CPU code loads and stores vectors aligned to this (tvm::runtime::kAllocAlignment).
constexpr int64_t kCpuAlignment = 64;

enum class Sharing {
  kSvm,     // fine-grained shared virtual memory: nothing to do but wait
  kMapped,  // one host-visible buffer, mapped for the CPU and unmapped for the GPU
  kCopied,  // two memories
};

struct OpenCLDevice {
  cl_context context = nullptr;
  cl_device_id device = nullptr;
  int id = 0;
};

const char* SharingName(Sharing sharing);

// "auto" picks by what the device offers; "svm", "mapped" and "copied" ask for one.
// Throws std::runtime_error where the device cannot do what is asked for.
Sharing ChooseSharing(const OpenCLDevice& device, const std::string& wanted);

class Memory {
 public:
  // `device.context` may be null for a program that has no GPU list and no shared buffer that a GPU touches.
  Memory(const Program& program, OpenCLDevice device, Sharing sharing);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  Sharing sharing() const { return sharing_; }

  // The CPU's address of a view; null for a buffer of the GPU alone.
  uint8_t* Host(const View& view) const;
  bool HostAligned(const View& view) const;

  // How a kernel takes a view: a shared pointer, or a cl_mem (a sub-buffer where the offset is not 0).
  // Both are null where the device's alignment forbids a sub-buffer; the caller then goes through a copy.
  struct DeviceArg {
    cl_mem mem = nullptr;
    const void* svm = nullptr;
    bool usable() const { return mem != nullptr || svm != nullptr; }
  };
  DeviceArg Device(const View& view);
  cl_mem Parent(int buffer) const { return mems_[static_cast<size_t>(buffer)].get(); }
  Mem NewDeviceBuffer(size_t bytes) const;

  // Makes the CPU's writes visible to the GPU, or the other way round, in queue order.  Returns bytes copied.
  int64_t EnqueueToGpu(cl_command_queue queue, const View& view, cl_uint waits, const cl_event* wait_list,
                       cl_event* done);
  int64_t EnqueueToCpu(cl_command_queue queue, const View& view, cl_uint waits, const cl_event* wait_list,
                       cl_event* done);
  // Mapped sharing only: before a run the ranges that the CPU read go back to the GPU; after it, and once before the
  // first, the ranges that the CPU will write come to it.  EndRun blocks.
  void BeginRun(cl_command_queue queue);
  void EndRun(cl_command_queue queue);

  // Fills a buffer before the first run.  Blocks.
  void Upload(cl_command_queue queue, int buffer, const void* data, size_t bytes);

 private:
  struct Free {
    void operator()(uint8_t* memory) const { std::free(memory); }
  };
  using Range = std::pair<int, std::pair<int64_t, int64_t>>;

  uint8_t* MapRange(cl_command_queue queue, const View& view, cl_map_flags flags, bool block, cl_uint waits,
                    const cl_event* wait_list, cl_event* done);

  const Program& program_;
  OpenCLDevice device_;
  Sharing sharing_;
  int64_t sub_buffer_alignment_ = 1;
  std::vector<std::unique_ptr<uint8_t, Free>> host_;  // owned host memory
  std::vector<uint8_t*> address_;                     // the CPU's address of each buffer
  std::vector<void*> svm_;
  std::vector<Mem> mems_;
  std::map<Range, Mem> sub_buffers_;
  std::map<Range, void*> mapped_for_cpu_write_;
  std::map<Range, void*> mapped_for_cpu_read_;
};

}  // namespace tvm_codl

#endif  // TVM_CODL_COEXEC_MEMORY_H_
