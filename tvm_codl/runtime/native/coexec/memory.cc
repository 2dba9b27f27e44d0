#include "memory.h"

#include <algorithm>
#include <cstring>

namespace tvm_codl {

namespace {

constexpr size_t kZerosAtOnce = size_t{1} << 20;

size_t RoundUp(int64_t bytes) {
  return static_cast<size_t>((bytes + kCpuAlignment - 1) / kCpuAlignment * kCpuAlignment);
}

// Memory that was never written may all map to one page of zeros, which stays in the first cache and reads several
// times as fast as a real weight.
void WriteZeros(const OpenCLDevice& device, cl_mem mem, size_t bytes) {
  const Queue queue = NewQueue(device.context, device.device);
  const std::vector<uint8_t> zeros(std::min(bytes, kZerosAtOnce));
  for (size_t at = 0; at < bytes; at += zeros.size()) {
    const size_t part = std::min(zeros.size(), bytes - at);
    Check(clEnqueueWriteBuffer(queue.get(), mem, CL_TRUE, at, part, zeros.data(), 0, nullptr, nullptr),
          "clEnqueueWriteBuffer");
  }
}

// What a transfer is where nothing has to move: a place in the queue.
void EnqueueMarker(cl_command_queue queue, cl_uint waits, const cl_event* wait_list, cl_event* done) {
  if (waits == 0 && done == nullptr) return;
  Check(clEnqueueMarkerWithWaitList(queue, waits, wait_list, done), "clEnqueueMarkerWithWaitList");
}

}  // namespace

const char* SharingName(Sharing sharing) {
  static constexpr const char* kNames[] = {"svm", "mapped", "copied"};
  return kNames[static_cast<size_t>(sharing)];
}

Sharing ChooseSharing(const OpenCLDevice& device, const std::string& wanted) {
  const bool svm = (Info<cl_device_svm_capabilities>(device.device, CL_DEVICE_SVM_CAPABILITIES) &
                    CL_DEVICE_SVM_FINE_GRAIN_BUFFER) != 0;
  const bool unified = Info<cl_bool>(device.device, CL_DEVICE_HOST_UNIFIED_MEMORY) == CL_TRUE;
  if (wanted == "copied") return Sharing::kCopied;
  if (wanted == "mapped") return Sharing::kMapped;
  if (wanted == "svm") {
    if (!svm) throw std::runtime_error("this OpenCL device has no fine-grained shared virtual memory");
    return Sharing::kSvm;
  }
  if (wanted != "auto") throw std::runtime_error("sharing must be auto, svm, mapped or copied, not " + wanted);
  if (!unified) return Sharing::kCopied;
  return svm ? Sharing::kSvm : Sharing::kMapped;
}

Memory::Memory(const Program& program, OpenCLDevice device, Sharing sharing, std::shared_ptr<WeightStore> weights)
    : program_(program), device_(device), sharing_(sharing), weights_(std::move(weights)) {
  if (device_.context != nullptr) {
    const auto bits = Info<cl_uint>(device_.device, CL_DEVICE_MEM_BASE_ADDR_ALIGN);
    sub_buffer_alignment_ = std::max<int64_t>(bits / 8, 1);
  }
  Place();
  for (const Weight& weight : program_.weights) PlaceWeight(weight);
  for (Block& block : blocks_) {
    if (!block.weight) Allocate(&block);
  }
}

// Which block each buffer lies in, and how large the blocks are.
void Memory::Place() {
  // While the CPU has a range mapped, the GPU must not use it for another tensor.  Mapping each tensor only when needed
  // would cost commands in every run, so mapped buffers do not share memory.
  const bool apart = sharing_ == Sharing::kMapped && device_.context != nullptr;
  const bool unified = sharing_ == Sharing::kSvm && device_.context != nullptr;
  // A tensor that lies alone or in turn with others is a whole buffer, which needs no sub-buffer (see Device).
  const bool whole = sharing_ == Sharing::kCopied && device_.context != nullptr;
  std::map<std::pair<int, int64_t>, size_t> block_at;
  // One block more than the program has: the common one.
  const auto common = static_cast<size_t>(program_.blocks);
  blocks_.resize(common + 1);
  for (const Buffer& buffer : program_.buffers) {
    const bool own = apart && buffer.space == Space::kShared;
    const bool in_common = unified && buffer.common >= 0;
    if (whole && buffer.at != 0 && buffer.space != Space::kCpu) {
      const auto [found, first] = block_at.try_emplace({buffer.block, buffer.at}, blocks_.size());
      if (first) blocks_.emplace_back();
      block_of_.push_back(found->second);
      at_.push_back(0);
    } else {
      if (own) blocks_.emplace_back();
      block_of_.push_back(own ? blocks_.size() - 1 : in_common ? common : static_cast<size_t>(buffer.block));
      at_.push_back(own ? 0 : in_common ? buffer.common : buffer.at);
    }
    Block& block = blocks_[block_of_.back()];
    block.bytes = std::max(block.bytes, at_.back() + buffer.bytes);
    block.space = in_common ? Space::kShared : buffer.space;
  }
}

void Memory::PlaceWeight(const Weight& weight) {
  const Buffer& buffer = program_.buffers[static_cast<size_t>(weight.buffer)];
  Block& block = blocks_[block_of_[static_cast<size_t>(weight.buffer)]];
  block.timed = weight.name.empty();
  if (block.timed) return;  // a library only for timing: its weights are zero
  const int64_t bytes = weights_->Bytes(weight.name);
  if (std::max<int64_t>(bytes, 1) != buffer.bytes) {
    throw std::runtime_error("the weight " + weight.name + " has another size than its buffer");
  }
  block.weight = true;
  const bool alone = device_.context == nullptr;
  const bool copied = buffer.space == Space::kShared && sharing_ == Sharing::kCopied;
  if (buffer.space == Space::kCpu || alone || copied) {
    block.array = weights_->OnHost(weight.name);
    block.address = static_cast<uint8_t*>(block.array->data) + block.array->byte_offset;
  }
  if (buffer.space == Space::kCpu || alone) return;
  auto form = WeightStore::Form::kDevice;
  if (buffer.space == Space::kShared && sharing_ == Sharing::kMapped) form = WeightStore::Form::kMappable;
  if (buffer.space == Space::kShared && sharing_ == Sharing::kSvm) form = WeightStore::Form::kSvm;
  const WeightStore::Place place = weights_->OnDevice(weight.name, device_, form);
  block.mem = place.mem;
  if (form == WeightStore::Form::kSvm) block.svm = place.address;
  if (place.address != nullptr) block.address = static_cast<uint8_t*>(place.address);
}

// The driver moves bytes of its own host memory directly, and without the CPU; others it copies there first.  Where it
// has too little of it, the block stays as it is.
void Memory::Pin(Block* block, size_t bytes) {
  cl_int status = CL_SUCCESS;
  Mem pinned(clCreateBuffer(device_.context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, bytes, nullptr, &status));
  if (status != CL_SUCCESS) return;
  const Queue queue = NewQueue(device_.context, device_.device);
  // Mapped for good: commands take the address, and never the buffer.
  void* address = clEnqueueMapBuffer(queue.get(), pinned.get(), CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, bytes, 0,
                                     nullptr, nullptr, &status);
  if (status != CL_SUCCESS || reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(kCpuAlignment) != 0) return;
  block->owned_pinned = std::move(pinned);
  block->address = static_cast<uint8_t*>(address);
}

void Memory::Allocate(Block* block) {
  const Space space = block->space;
  if (block->bytes == 0) return;  // its buffers have memory of their own
  const size_t bytes = RoundUp(block->bytes);
  const bool alone = device_.context == nullptr;
  const bool twice = space == Space::kShared && sharing_ == Sharing::kCopied;
  if (space == Space::kCpu || (alone && space == Space::kShared) || twice) {
    if (twice && !alone) Pin(block, bytes);
    if (block->address == nullptr) {
      block->owned_host = AlignedBytes(bytes);
      block->address = block->owned_host.get();
    }
    std::memset(block->address, 0, bytes);
    tensor_bytes_ += static_cast<int64_t>(bytes);
  }
  if (alone || space == Space::kCpu) return;
  tensor_bytes_ += static_cast<int64_t>(bytes);
  if (space == Space::kShared && sharing_ == Sharing::kSvm) {
    block->owned_svm = AllocateSvm(device_.context, bytes);
    block->svm = block->owned_svm.get();
    std::memset(block->svm, 0, bytes);
    block->address = static_cast<uint8_t*>(block->svm);
    return;
  }
  cl_mem_flags flags = CL_MEM_READ_WRITE;
  if (space == Space::kShared && sharing_ == Sharing::kMapped) flags |= CL_MEM_ALLOC_HOST_PTR;
  block->owned_mem = NewBuffer(device_.context, flags, bytes);
  block->mem = block->owned_mem.get();
  if (block->timed) WriteZeros(device_, block->mem, bytes);
}

uint8_t* Memory::Host(const View& view) const {
  uint8_t* base = BlockOf(view).address;
  return base == nullptr ? nullptr : base + Offset(view);
}

bool Memory::HostAligned(const View& view) const {
  return reinterpret_cast<uintptr_t>(Host(view)) % static_cast<uintptr_t>(kCpuAlignment) == 0;
}

Mem Memory::NewDeviceBuffer(size_t bytes) {
  Mem mem = NewBuffer(device_.context, CL_MEM_READ_WRITE, bytes);
  scratch_bytes_ += static_cast<int64_t>(bytes);
  return mem;
}

Mem Memory::NewDeviceImage(cl_mem like) {
  cl_image_format format{};
  cl_image_desc shape{};
  shape.image_type = CL_MEM_OBJECT_IMAGE2D;
  Check(clGetImageInfo(like, CL_IMAGE_FORMAT, sizeof(format), &format, nullptr), "clGetImageInfo");
  Check(clGetImageInfo(like, CL_IMAGE_WIDTH, sizeof(size_t), &shape.image_width, nullptr), "clGetImageInfo");
  Check(clGetImageInfo(like, CL_IMAGE_HEIGHT, sizeof(size_t), &shape.image_height, nullptr), "clGetImageInfo");
  cl_int status = CL_SUCCESS;
  Mem mem(clCreateImage(device_.context, CL_MEM_READ_WRITE, &format, &shape, nullptr, &status));
  Check(status, "clCreateImage");
  size_t bytes = 0;
  Check(clGetMemObjectInfo(mem.get(), CL_MEM_SIZE, sizeof(bytes), &bytes, nullptr), "clGetMemObjectInfo");
  scratch_bytes_ += static_cast<int64_t>(bytes);
  return mem;
}

Memory::DeviceArg Memory::Device(const View& view) {
  const Block& block = BlockOf(view);
  const int64_t offset = Offset(view);
  if (block.svm != nullptr) return {nullptr, static_cast<uint8_t*>(block.svm) + offset};
  if (offset == 0) return {block.mem, nullptr};
  // Several queues use the memory of a device of its own at once, and OpenCL leaves open what a buffer and a sub-buffer
  // of it do then (1.2, clCreateSubBuffer).  NVIDIA's driver crashes when it frees such sub-buffers.
  if (sharing_ == Sharing::kCopied || offset % sub_buffer_alignment_ != 0) return {};
  Mem& sub = sub_buffers_[RangeOf(view)];
  if (!sub) {
    const cl_buffer_region region{static_cast<size_t>(offset), static_cast<size_t>(view.bytes)};
    cl_int status = CL_SUCCESS;
    sub.reset(clCreateSubBuffer(block.mem, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &region, &status));
    Check(status, "clCreateSubBuffer");
  }
  return {sub.get(), nullptr};
}

uint8_t* Memory::MapRange(cl_command_queue queue, const View& view, cl_map_flags flags, bool block, cl_uint waits,
                          const cl_event* wait_list, cl_event* done) {
  Block& memory = BlockOf(view);
  cl_int status = CL_SUCCESS;
  void* at = clEnqueueMapBuffer(queue, memory.mem, block ? CL_TRUE : CL_FALSE, flags, static_cast<size_t>(Offset(view)),
                                static_cast<size_t>(view.bytes), waits, wait_list, done, &status);
  Check(status, "clEnqueueMapBuffer");
  uint8_t* base = static_cast<uint8_t*>(at) - Offset(view);
  if (memory.address == nullptr) memory.address = base;
  if (memory.address != base) {
    throw std::runtime_error("the driver mapped one buffer at two addresses; make the module with sharing \"copied\"");
  }
  return static_cast<uint8_t*>(at);
}

int64_t Memory::EnqueueToGpu(cl_command_queue queue, const View& view, cl_uint waits, const cl_event* wait_list,
                             cl_event* done) {
  if (sharing_ == Sharing::kCopied) {
    Check(clEnqueueWriteBuffer(queue, Parent(view), CL_FALSE, static_cast<size_t>(Offset(view)),
                               static_cast<size_t>(view.bytes), Host(view), waits, wait_list, done),
          "clEnqueueWriteBuffer");
    return view.bytes;
  }
  const auto it = mapped_for_cpu_write_.find(RangeOf(view));
  if (it != mapped_for_cpu_write_.end() && it->second != nullptr) {
    Check(clEnqueueUnmapMemObject(queue, Parent(view), it->second, waits, wait_list, done), "clEnqueueUnmapMemObject");
    it->second = nullptr;
    return 0;
  }
  EnqueueMarker(queue, waits, wait_list, done);
  return 0;
}

int64_t Memory::EnqueueToCpu(cl_command_queue queue, const View& view, cl_uint waits, const cl_event* wait_list,
                             cl_event* done) {
  if (sharing_ == Sharing::kCopied) {
    Check(clEnqueueReadBuffer(queue, Parent(view), CL_FALSE, static_cast<size_t>(Offset(view)),
                              static_cast<size_t>(view.bytes), Host(view), waits, wait_list, done),
          "clEnqueueReadBuffer");
    return view.bytes;
  }
  const auto it = mapped_for_cpu_read_.find(RangeOf(view));
  if (it != mapped_for_cpu_read_.end() && it->second == nullptr) {
    it->second = MapRange(queue, view, CL_MAP_READ, false, waits, wait_list, done);
  } else {
    EnqueueMarker(queue, waits, wait_list, done);
  }
  return 0;
}

void Memory::BeginRun(cl_command_queue queue) {
  for (auto& [range, at] : mapped_for_cpu_read_) {
    if (at == nullptr) continue;
    Check(clEnqueueUnmapMemObject(queue, Parent(ViewOf(range)), at, 0, nullptr, nullptr), "clEnqueueUnmapMemObject");
    at = nullptr;
  }
}

void Memory::EndRun(cl_command_queue queue) {
  if (sharing_ != Sharing::kMapped || device_.context == nullptr) return;
  if (mapped_for_cpu_write_.empty() && mapped_for_cpu_read_.empty()) {
    for (size_t i = 0; i < program_.buffers.size(); ++i) {
      if (program_.buffers[i].space != Space::kShared) continue;
      const View whole = ViewOf({static_cast<int>(i), {0, program_.buffers[i].bytes}});
      if (BlockOf(whole).weight) continue;  // the store has mapped it
      // Learns the address, which later maps must repeat.
      void* at = MapRange(queue, whole, CL_MAP_READ | CL_MAP_WRITE, true, 0, nullptr, nullptr);
      Check(clEnqueueUnmapMemObject(queue, Parent(whole), at, 0, nullptr, nullptr), "clEnqueueUnmapMemObject");
    }
    for (const Step& step : program_.gpu) {
      if (step.what != Do::kToGpu && step.what != Do::kToCpu) continue;
      const View& view = step.args[0];
      auto& ranges = step.what == Do::kToGpu ? mapped_for_cpu_write_ : mapped_for_cpu_read_;
      ranges[RangeOf(view)] = nullptr;
    }
  }
  for (auto& [range, at] : mapped_for_cpu_write_) {
    if (at != nullptr) continue;
    at = MapRange(queue, ViewOf(range), CL_MAP_WRITE, true, 0, nullptr, nullptr);
  }
}

}  // namespace tvm_codl
