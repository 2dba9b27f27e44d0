// Recording: every function of the list is called once, and what it launches becomes commands.
#include <opencl_common.h>

#include <algorithm>
#include <cstring>
#include <future>

#include "../opencl/launch_recorder.h"
#include "cpu_list.h"
#include "gpu_list.h"

namespace tvm_codl {

using tvm::runtime::Module;
using tvm::runtime::PackedFunc;
using tvm::runtime::TVMArgs;
using tvm::runtime::TVMRetValue;
using tvm::runtime::cl::BufferDescriptor;

namespace {

size_t BytesOf(cl_mem mem) {
  size_t bytes = 0;
  Check(clGetMemObjectInfo(mem, CL_MEM_SIZE, sizeof(bytes), &bytes, nullptr), "clGetMemObjectInfo");
  return bytes;
}

bool IsImage(cl_mem mem) {
  cl_mem_object_type type = 0;
  Check(clGetMemObjectInfo(mem, CL_MEM_TYPE, sizeof(type), &type, nullptr), "clGetMemObjectInfo");
  return type == CL_MEM_OBJECT_IMAGE2D;
}

}  // namespace

GpuList::GpuList(const Program& program, const std::vector<Module>& libraries, OpenCLDevice device, Memory* memory)
    : program_(program), device_(device), memory_(memory) {
  lanes_ = memory->sharing() == Sharing::kCopied;
  for (size_t lane = 0; lane < (lanes_ ? kLanes : 1); ++lane) {
    plain_[lane] = NewQueue(device.context, device.device);
    profiled_[lane] = NewQueue(device.context, device.device, CL_QUEUE_PROFILING_ENABLE);
  }
  const auto events = static_cast<size_t>(program.events);
  cpu_events_.resize(events);
  wait_at_.resize(events);
  cpu_signalled_.resize(events, 0);
  gpu_events_.resize(events);
  gate_shut_.resize(events, 0);
  if (!lanes_ && HasGates(device.device)) {
    for (size_t event = 0; event < events; ++event) gates_.push_back(std::make_unique<Gate>());
  }
  throttle_.resize(kThrottleSlots);
  is_weight_.resize(program.buffers.size(), 0);
  for (const Weight& weight : program.weights) is_weight_[static_cast<size_t>(weight.buffer)] = 1;
  RecordAll(libraries);
  Lend();
  FillImages();
  waits_.reserve(1);
  if (lanes_) OrderLanes();
  done_.resize(commands_.size());
  commands_of_.resize(program.regions.size());
  for (size_t i = 0; i < commands_.size(); ++i) {
    const Command& command = commands_[i];
    if (command.type != Command::Type::kLaunch && command.type != Command::Type::kCopy) continue;
    const int region = program.gpu[command.step].region;
    if (region >= 0) commands_of_[static_cast<size_t>(region)].push_back(i);
  }
  profile_.reserve(commands_.size());
}

void GpuList::RecordAll(const std::vector<Module>& libraries) {
  for (size_t i = 0; i < program_.gpu.size(); ++i) {
    Compile(i, libraries);
    command_end_.push_back(commands_.size());
  }
}

void GpuList::Compile(size_t index, const std::vector<Module>& libraries) {
  const Step& step = program_.gpu[index];
  switch (step.what) {
    case Do::kWait:
      commands_.push_back({Command::Type::kWait, static_cast<size_t>(step.event), index});
      return;
    case Do::kSignal:
      commands_.push_back({Command::Type::kSignal, static_cast<size_t>(step.event), index});
      return;
    case Do::kToGpu:
    case Do::kToCpu:
      // Where memory is one, there is no command to enqueue.
      if (memory_->sharing() != Sharing::kSvm) commands_.push_back({Command::Type::kTransfer, 0, index});
      return;
    case Do::kCopy:
      commands_.push_back({Command::Type::kCopy, copies_.size(), index});
      copies_.push_back({PlaceOf(step.args[0]), PlaceOf(step.args[1]), static_cast<size_t>(step.args[0].bytes), false});
      return;
    case Do::kCall:
      // TVM's pools of workspaces and images are per thread, and their pieces are as large as the thread's largest
      // request so far.  A new thread shows this call's own needs, and frees its pools at its end.
      std::async(std::launch::async, [&] { Record(index, FindFunction(libraries, step.function)); }).get();
  }
}

// Allocates the slots, and hands them to kernels and copies.
void GpuList::Lend() {
  for (size_t bytes : scratch_bytes_) scratch_.push_back(memory_->NewDeviceBuffer(bytes));
  for (const Loan& loan : loans_) {
    const cl_mem mem = scratch_[loan.slot].get();
    if (loan.what == Loan::For::kKernelArg) {
      Check(clSetKernelArg(launches_[loan.index].kernel.get(), loan.arg, sizeof(mem), &mem), "clSetKernelArg");
    } else {
      Copy& copy = copies_[loan.index];
      (loan.what == Loan::For::kCopyFrom ? copy.from : copy.to).mem = mem;
    }
  }
  loans_.clear();
}

// Weights never change, so neither does an image of them.
void GpuList::FillImages() {
  for (const Launch& launch : fills_) {
    Check(clEnqueueNDRangeKernel(queue(), launch.kernel.get(), launch.dims, nullptr, launch.global.data(),
                                 launch.local[0] != 0 ? launch.local.data() : nullptr, 0, nullptr, nullptr),
          "clEnqueueNDRangeKernel");
  }
  if (!fills_.empty()) Check(clFinish(queue()), "clFinish");
  fills_.clear();
}

// Our own image in place of one from TVM's pool.
cl_mem GpuList::OwnImage(cl_mem recorded, std::map<cl_mem, cl_mem>* own) {
  cl_mem& image = (*own)[recorded];
  if (image == nullptr) {
    images_.push_back(memory_->NewDeviceImage(recorded));
    image = images_.back().get();
  }
  return image;
}

GpuList::Place GpuList::PlaceOf(const View& view) const {
  const cl_mem mem = memory_->Parent(view);
  return {mem, static_cast<size_t>(memory_->Offset(view)), mem == nullptr ? memory_->Host(view) : nullptr};
}

void GpuList::Record(size_t index, const PackedFunc& function) {
  const Step& step = program_.gpu[index];
  const size_t n = step.args.size();
  const size_t first_output = n - static_cast<size_t>(step.outputs);
  // Each argument's `buffer` is a token: the address of its own descriptor.  The launches name arguments by it.
  std::vector<BufferDescriptor> descriptors(n);
  std::vector<DLTensor> tensors(n);
  std::vector<TVMValue> values(n);
  std::vector<int> codes(n, kTVMDLTensorHandle);
  std::vector<std::vector<int64_t>> shapes(n);
  std::vector<Memory::DeviceArg> device_args(n);
  std::map<cl_mem, size_t> by_token;
  std::vector<std::pair<cl_mem, Copy>> after;
  // Memory that the call needs beside its arguments: bytes, by a handle until they have a slot.
  std::map<cl_mem, size_t> wanted;
  std::vector<std::pair<cl_mem, Loan>> loans;
  for (size_t i = 0; i < n; ++i) {
    const View& view = step.args[i];
    descriptors[i].buffer = reinterpret_cast<cl_mem>(&descriptors[i]);
    by_token[descriptors[i].buffer] = i;
    shapes[i] = view.shape;
    tensors[i] = DLTensor{};
    tensors[i].data = &descriptors[i];
    tensors[i].device = DLDevice{kDLOpenCL, device_.id};
    tensors[i].ndim = static_cast<int>(view.shape.size());
    tensors[i].dtype = view.dtype;
    tensors[i].shape = shapes[i].data();
    values[i].v_handle = &tensors[i];
    device_args[i] = memory_->Device(view);
    if (device_args[i].usable()) continue;
    const cl_mem token = descriptors[i].buffer;
    const auto bytes = static_cast<size_t>(view.bytes);
    wanted[token] = bytes;
    if (i >= first_output) {
      after.push_back({token, {Place{}, PlaceOf(view), bytes, true}});
      continue;
    }
    loans.push_back({token, {Loan::For::kCopyTo, copies_.size(), 0, 0}});
    commands_.push_back({Command::Type::kCopy, copies_.size(), index});
    copies_.push_back({PlaceOf(view), Place{}, bytes, true});
  }

  std::vector<RecordedLaunch> recorded;
  std::vector<Mem> released;
  std::map<cl_mem, cl_mem> own_images;
  {
    LaunchRecorder recorder;
    TVMRetValue result;
    function.CallPacked(TVMArgs(values.data(), codes.data(), static_cast<int>(n)), &result);
    recorded = recorder.Take();
    for (cl_mem mem : recorder.TakeReleased()) released.emplace_back(mem);
  }
  for (const RecordedLaunch& record : recorded) {
    cl_int status = CL_SUCCESS;
    cl_program program = nullptr;
    Check(clGetKernelInfo(record.kernel, CL_KERNEL_PROGRAM, sizeof(program), &program, nullptr), "clGetKernelInfo");
    size_t length = 0;
    Check(clGetKernelInfo(record.kernel, CL_KERNEL_FUNCTION_NAME, 0, nullptr, &length), "clGetKernelInfo");
    std::vector<char> name(length + 1, '\0');
    Check(clGetKernelInfo(record.kernel, CL_KERNEL_FUNCTION_NAME, length, name.data(), nullptr), "clGetKernelInfo");
    Launch launch;
    launch.kernel.reset(clCreateKernel(program, name.data(), &status));
    Check(status, "clCreateKernel");
    launch.dims = record.dims;
    launch.global = record.global;
    launch.local = record.local;
    bool has_image = false, weights_alone = true;
    for (const auto& [arg, bytes] : record.args) {
      cl_mem mem = nullptr;
      if (bytes.size() == sizeof(mem)) std::memcpy(&mem, bytes.data(), sizeof(mem));
      auto token = by_token.find(mem);
      const bool lent = token == by_token.end() && bytes.size() == sizeof(mem);
      if (lent && IsImage(mem)) {
        has_image = true;
        const cl_mem image = OwnImage(mem, &own_images);
        Check(clSetKernelArg(launch.kernel.get(), arg, sizeof(image), &image), "clSetKernelArg");
        continue;
      }
      const bool weight = token != by_token.end() && device_args[token->second].usable() &&
                          is_weight_[static_cast<size_t>(step.args[token->second].buffer)] != 0;
      if (lent || (token != by_token.end() && !weight)) weights_alone = false;
      if (token != by_token.end() && device_args[token->second].usable()) {
        const Memory::DeviceArg& device_arg = device_args[token->second];
        if (device_arg.svm != nullptr) {
          Check(clSetKernelArgSVMPointer(launch.kernel.get(), arg, device_arg.svm), "clSetKernelArgSVMPointer");
        } else {
          Check(clSetKernelArg(launch.kernel.get(), arg, sizeof(cl_mem), &device_arg.mem), "clSetKernelArg");
        }
      } else if (bytes.size() == sizeof(mem)) {
        // A bounce, or a workspace from TVM's pool, which will reuse it: the replay has its own.
        if (lent) wanted[mem] = BytesOf(mem);
        loans.push_back({mem, {Loan::For::kKernelArg, launches_.size(), arg, 0}});
      } else {
        Check(clSetKernelArg(launch.kernel.get(), arg, bytes.size(), bytes.data()), "clSetKernelArg");
      }
    }
    if (has_image && weights_alone) {
      fills_.push_back(std::move(launch));
      continue;
    }
    commands_.push_back({Command::Type::kLaunch, launches_.size(), index});
    launches_.push_back(std::move(launch));
  }
  for (const auto& [token, copy] : after) {
    loans.push_back({token, {Loan::For::kCopyFrom, copies_.size(), 0, 0}});
    commands_.push_back({Command::Type::kCopy, copies_.size(), index});
    copies_.push_back(copy);
  }
  GiveSlots(wanted, loans);
}

// The largest first, so that slots of different calls have similar sizes.
void GpuList::GiveSlots(const std::map<cl_mem, size_t>& wanted, const std::vector<std::pair<cl_mem, Loan>>& loans) {
  std::vector<std::pair<size_t, cl_mem>> falling;
  for (const auto& [handle, bytes] : wanted) falling.emplace_back(bytes, handle);
  std::sort(falling.rbegin(), falling.rend());
  if (scratch_bytes_.size() < falling.size()) scratch_bytes_.resize(falling.size(), 0);
  std::map<cl_mem, size_t> slot_of;
  for (size_t slot = 0; slot < falling.size(); ++slot) {
    scratch_bytes_[slot] = std::max(scratch_bytes_[slot], falling[slot].first);
    slot_of[falling[slot].second] = slot;
  }
  for (auto [handle, loan] : loans) {
    loan.slot = slot_of.at(handle);
    loans_.push_back(loan);
  }
}

}  // namespace tvm_codl
