#include "memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace tvm_codl {

namespace {

template <typename T>
T Info(cl_device_id device, cl_device_info what) {
  T value{};
  // A driver older than the question answers with an error: that is a "no".
  if (clGetDeviceInfo(device, what, sizeof(value), &value, nullptr) != CL_SUCCESS) return T{};
  return value;
}

size_t RoundUp(int64_t bytes) {
  return static_cast<size_t>((bytes + kCpuAlignment - 1) / kCpuAlignment * kCpuAlignment);
}

}  // namespace

const char* SharingName(Sharing sharing) {
  switch (sharing) {
    case Sharing::kSvm:
      return "svm";
    case Sharing::kMapped:
      return "mapped";
    case Sharing::kCopied:
      return "copied";
  }
  return "";
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

Memory::Memory(const Program& program, OpenCLDevice device, Sharing sharing)
    : program_(program), device_(device), sharing_(sharing) {
  const size_t n = program.buffers.size();
  host_.resize(n);
  address_.resize(n, nullptr);
  svm_.resize(n, nullptr);
  mems_.resize(n);
  if (device_.context != nullptr) {
    const auto bits = Info<cl_uint>(device_.device, CL_DEVICE_MEM_BASE_ADDR_ALIGN);
    sub_buffer_alignment_ = std::max<int64_t>(bits / 8, 1);
  }
  for (size_t i = 0; i < n; ++i) {
    const Buffer& buffer = program.buffers[i];
    const size_t bytes = RoundUp(buffer.bytes);
    const bool alone = device_.context == nullptr;
    if (buffer.space == Space::kCpu || (alone && buffer.space == Space::kShared) ||
        (buffer.space == Space::kShared && sharing_ == Sharing::kCopied)) {
      auto* memory = static_cast<uint8_t*>(std::aligned_alloc(kCpuAlignment, bytes));
      if (memory == nullptr)
        throw std::runtime_error("out of memory for a buffer of " + std::to_string(bytes) + " bytes");
      std::memset(memory, 0, bytes);
      host_[i].reset(memory);
      address_[i] = memory;
    }
    if (alone || buffer.space == Space::kCpu) continue;
    if (buffer.space == Space::kShared && sharing_ == Sharing::kSvm) {
      svm_[i] = clSVMAlloc(device_.context, CL_MEM_READ_WRITE | CL_MEM_SVM_FINE_GRAIN_BUFFER, bytes, 128);
      if (svm_[i] == nullptr) throw std::runtime_error("no shared memory for " + std::to_string(bytes) + " bytes");
      std::memset(svm_[i], 0, bytes);
      address_[i] = static_cast<uint8_t*>(svm_[i]);
      continue;
    }
    cl_mem_flags flags = CL_MEM_READ_WRITE;
    if (buffer.space == Space::kShared && sharing_ == Sharing::kMapped) flags |= CL_MEM_ALLOC_HOST_PTR;
    cl_int status = CL_SUCCESS;
    mems_[i].reset(clCreateBuffer(device_.context, flags, bytes, nullptr, &status));
    Check(status, "clCreateBuffer");
  }
}

Memory::~Memory() {
  mapped_for_cpu_write_.clear();
  for (void* memory : svm_) {
    if (memory != nullptr) clSVMFree(device_.context, memory);
  }
}

uint8_t* Memory::Host(const View& view) const {
  uint8_t* base = address_[static_cast<size_t>(view.buffer)];
  return base == nullptr ? nullptr : base + view.offset;
}

bool Memory::HostAligned(const View& view) const {
  return reinterpret_cast<uintptr_t>(Host(view)) % static_cast<uintptr_t>(kCpuAlignment) == 0;
}

Mem Memory::NewDeviceBuffer(size_t bytes) const {
  cl_int status = CL_SUCCESS;
  Mem mem(clCreateBuffer(device_.context, CL_MEM_READ_WRITE, bytes, nullptr, &status));
  Check(status, "clCreateBuffer");
  return mem;
}

Memory::DeviceArg Memory::Device(const View& view) {
  DeviceArg arg;
  const auto index = static_cast<size_t>(view.buffer);
  if (svm_[index] != nullptr) {
    arg.svm = static_cast<uint8_t*>(svm_[index]) + view.offset;
    return arg;
  }
  if (view.offset == 0) {
    arg.mem = mems_[index].get();
    return arg;
  }
  if (view.offset % sub_buffer_alignment_ != 0) return arg;
  Mem& sub = sub_buffers_[{view.buffer, {view.offset, view.bytes}}];
  if (!sub) {
    const cl_buffer_region region{static_cast<size_t>(view.offset), static_cast<size_t>(view.bytes)};
    cl_int status = CL_SUCCESS;
    sub.reset(clCreateSubBuffer(mems_[index].get(), CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &region, &status));
    Check(status, "clCreateSubBuffer");
  }
  arg.mem = sub.get();
  return arg;
}

uint8_t* Memory::MapRange(cl_command_queue queue, const View& view, cl_map_flags flags, bool block, cl_uint waits,
                          const cl_event* wait_list, cl_event* done) {
  const auto index = static_cast<size_t>(view.buffer);
  cl_int status = CL_SUCCESS;
  void* at =
      clEnqueueMapBuffer(queue, mems_[index].get(), block ? CL_TRUE : CL_FALSE, flags, static_cast<size_t>(view.offset),
                         static_cast<size_t>(view.bytes), waits, wait_list, done, &status);
  Check(status, "clEnqueueMapBuffer");
  uint8_t* base = static_cast<uint8_t*>(at) - view.offset;
  if (address_[index] == nullptr) address_[index] = base;
  if (address_[index] != base) {
    throw std::runtime_error("the driver mapped one buffer at two addresses: build with sharing=copied");
  }
  return static_cast<uint8_t*>(at);
}

int64_t Memory::EnqueueToGpu(cl_command_queue queue, const View& view, cl_uint waits, const cl_event* wait_list,
                             cl_event* done) {
  const auto index = static_cast<size_t>(view.buffer);
  if (sharing_ == Sharing::kCopied) {
    Check(clEnqueueWriteBuffer(queue, mems_[index].get(), CL_FALSE, static_cast<size_t>(view.offset),
                               static_cast<size_t>(view.bytes), Host(view), waits, wait_list, done),
          "clEnqueueWriteBuffer");
    return view.bytes;
  }
  const Range range{view.buffer, {view.offset, view.bytes}};
  auto it = mapped_for_cpu_write_.find(range);
  if (sharing_ == Sharing::kMapped && it != mapped_for_cpu_write_.end() && it->second != nullptr) {
    Check(clEnqueueUnmapMemObject(queue, mems_[index].get(), it->second, waits, wait_list, done),
          "clEnqueueUnmapMemObject");
    it->second = nullptr;
    return 0;
  }
  if (waits != 0 || done != nullptr) {
    Check(clEnqueueMarkerWithWaitList(queue, waits, wait_list, done), "clEnqueueMarkerWithWaitList");
  }
  return 0;
}

int64_t Memory::EnqueueToCpu(cl_command_queue queue, const View& view, cl_uint waits, const cl_event* wait_list,
                             cl_event* done) {
  const auto index = static_cast<size_t>(view.buffer);
  if (sharing_ == Sharing::kCopied) {
    Check(clEnqueueReadBuffer(queue, mems_[index].get(), CL_FALSE, static_cast<size_t>(view.offset),
                              static_cast<size_t>(view.bytes), Host(view), waits, wait_list, done),
          "clEnqueueReadBuffer");
    return view.bytes;
  }
  if (sharing_ == Sharing::kMapped) {
    const Range range{view.buffer, {view.offset, view.bytes}};
    auto it = mapped_for_cpu_read_.find(range);
    if (it != mapped_for_cpu_read_.end() && it->second == nullptr) {
      it->second = MapRange(queue, view, CL_MAP_READ, false, waits, wait_list, done);
      return 0;
    }
  }
  if (waits != 0 || done != nullptr) {
    Check(clEnqueueMarkerWithWaitList(queue, waits, wait_list, done), "clEnqueueMarkerWithWaitList");
  }
  return 0;
}

void Memory::BeginRun(cl_command_queue queue) {
  for (auto& [range, at] : mapped_for_cpu_read_) {
    if (at == nullptr) continue;
    Check(clEnqueueUnmapMemObject(queue, mems_[static_cast<size_t>(range.first)].get(), at, 0, nullptr, nullptr),
          "clEnqueueUnmapMemObject");
    at = nullptr;
  }
}

void Memory::EndRun(cl_command_queue queue) {
  if (sharing_ != Sharing::kMapped || device_.context == nullptr) return;
  if (mapped_for_cpu_write_.empty() && mapped_for_cpu_read_.empty()) {
    for (size_t i = 0; i < program_.buffers.size(); ++i) {
      if (program_.buffers[i].space != Space::kShared) continue;
      View whole;
      whole.buffer = static_cast<int>(i);
      whole.bytes = program_.buffers[i].bytes;
      // Learns the address, which later maps must repeat.
      void* at = MapRange(queue, whole, CL_MAP_READ | CL_MAP_WRITE, true, 0, nullptr, nullptr);
      Check(clEnqueueUnmapMemObject(queue, mems_[i].get(), at, 0, nullptr, nullptr), "clEnqueueUnmapMemObject");
    }
    for (const Step& step : program_.gpu) {
      if (step.what != Do::kToGpu && step.what != Do::kToCpu) continue;
      const View& view = step.args[0];
      auto& ranges = step.what == Do::kToGpu ? mapped_for_cpu_write_ : mapped_for_cpu_read_;
      ranges[{view.buffer, {view.offset, view.bytes}}] = nullptr;
    }
  }
  for (auto& [range, at] : mapped_for_cpu_write_) {
    if (at != nullptr) continue;
    View view;
    view.buffer = range.first;
    view.offset = range.second.first;
    view.bytes = range.second.second;
    at = MapRange(queue, view, CL_MAP_WRITE, true, 0, nullptr, nullptr);
  }
}

void Memory::Upload(cl_command_queue queue, int buffer, const void* data, size_t bytes) {
  const auto index = static_cast<size_t>(buffer);
  if (address_[index] != nullptr) std::memcpy(address_[index], data, bytes);
  if (mems_[index]) {
    Check(clEnqueueWriteBuffer(queue, mems_[index].get(), CL_TRUE, 0, bytes, data, 0, nullptr, nullptr),
          "clEnqueueWriteBuffer");
  }
}

}  // namespace tvm_codl
