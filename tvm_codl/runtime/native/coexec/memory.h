// The memory of a program's buffers, and how CPU and GPU share it.
#ifndef TVM_CODL_COEXEC_MEMORY_H_
#define TVM_CODL_COEXEC_MEMORY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cl_handle.h"
#include "host_bytes.h"
#include "program.h"
#include "weights.h"

namespace tvm_codl {

enum class Sharing {
  kSvm,     // fine-grained shared virtual memory: nothing to do but wait
  kMapped,  // one host-visible buffer, mapped for the CPU and unmapped for the GPU
  kCopied,  // two memories; the CPU's side of what crosses is pinned
};

const char* SharingName(Sharing sharing);

// "auto" picks by what the device offers; "svm", "mapped" and "copied" ask for one.
// Throws std::runtime_error where the device cannot do what is asked for.
Sharing ChooseSharing(const OpenCLDevice& device, const std::string& wanted);

class Memory {
 public:
  // `device.context` may be null for a program that has no GPU list and no shared buffer that a GPU touches.
  // Throws std::runtime_error where memory is short, and for a weight that `weights` lacks or has in another size.
  Memory(const Program& program, OpenCLDevice device, Sharing sharing, std::shared_ptr<WeightStore> weights);

  Sharing sharing() const { return sharing_; }

  // The CPU's address of a view; null for a buffer of the GPU alone.
  uint8_t* Host(const View& view) const;
  bool HostAligned(const View& view) const;

  // How a kernel takes a view: a shared pointer, or a cl_mem (a sub-buffer where the offset is not 0).
  // Both are null where a sub-buffer is not possible; the caller then goes through a copy.
  struct DeviceArg {
    cl_mem mem = nullptr;
    const void* svm = nullptr;
    bool usable() const { return mem != nullptr || svm != nullptr; }
  };
  DeviceArg Device(const View& view);
  // The OpenCL buffer of a view, unless it is a shared pointer, and the view's offset in its block, in bytes.
  cl_mem Parent(const View& view) const { return BlockOf(view).mem; }
  int64_t Offset(const View& view) const { return at_[static_cast<size_t>(view.buffer)] + view.offset; }
  Mem NewDeviceBuffer(size_t bytes);
  // An image of the format and the size of `like`.
  Mem NewDeviceImage(cl_mem like);

  // Makes the CPU's writes visible to the GPU, or the other way round, in queue order.  Returns bytes copied.
  int64_t EnqueueToGpu(cl_command_queue queue, const View& view, cl_uint waits, const cl_event* wait_list,
                       cl_event* done);
  int64_t EnqueueToCpu(cl_command_queue queue, const View& view, cl_uint waits, const cl_event* wait_list,
                       cl_event* done);
  // Mapped sharing only: BeginRun unmaps the ranges that the CPU read; EndRun, also called once before the first run,
  // maps those that the CPU will write, and blocks.
  void BeginRun(cl_command_queue queue);
  void EndRun(cl_command_queue queue);

  // Bytes held on this device: for all the library's weights, which its executors share; for this one's tensors; and
  // for the workspace of its kernels and copies (NewDeviceBuffer, NewDeviceImage).
  struct HeldBytes {
    int64_t weights, tensors, scratch;
  };
  HeldBytes held_bytes() const { return {weights_->HeldBytes(), tensor_bytes_, scratch_bytes_}; }

 private:
  // One allocation, as both processors see it.
  struct Block {
    uint8_t* address = nullptr;  // the CPU's
    void* svm = nullptr;
    cl_mem mem = nullptr;
    int64_t bytes = 0;
    Space space = Space::kCpu;
    bool weight = false;  // a weight of the store, which owns it
    bool timed = false;   // a weight without a value
    HostBytes owned_host;
    Mem owned_mem;
    Mem owned_pinned;  // the CPU's side of a copied block
    Svm owned_svm;
    tvm::runtime::NDArray array;
  };
  // Of a view: buffer, offset, bytes.
  using Range = std::pair<int, std::pair<int64_t, int64_t>>;
  static Range RangeOf(const View& view) { return {view.buffer, {view.offset, view.bytes}}; }
  static View ViewOf(const Range& range) { return {range.first, range.second.first, range.second.second, {}, {}}; }

  Block& BlockOf(const View& view) { return blocks_[block_of_[static_cast<size_t>(view.buffer)]]; }
  const Block& BlockOf(const View& view) const { return blocks_[block_of_[static_cast<size_t>(view.buffer)]]; }
  void Place();
  void PlaceWeight(const Weight& weight);
  void Pin(Block* block, size_t bytes);
  void Allocate(Block* block);
  uint8_t* MapRange(cl_command_queue queue, const View& view, cl_map_flags flags, bool block, cl_uint waits,
                    const cl_event* wait_list, cl_event* done);

  const Program& program_;
  OpenCLDevice device_;
  Sharing sharing_;
  std::shared_ptr<WeightStore> weights_;
  int64_t sub_buffer_alignment_ = 1;
  std::vector<Block> blocks_;
  std::vector<size_t> block_of_;  // by buffer
  std::vector<int64_t> at_;       // by buffer: where in its block
  int64_t tensor_bytes_ = 0;
  int64_t scratch_bytes_ = 0;
  std::map<Range, Mem> sub_buffers_;
  std::map<Range, void*> mapped_for_cpu_write_;
  std::map<Range, void*> mapped_for_cpu_read_;
};

}  // namespace tvm_codl

#endif  // TVM_CODL_COEXEC_MEMORY_H_
