// Recording: every function of the list is called once, and what it launches becomes commands.
#include <opencl_common.h>

#include <cstring>

#include "../opencl/launch_recorder.h"
#include "cpu_list.h"
#include "gpu_list.h"

namespace tvm_codl {

using tvm::runtime::Module;
using tvm::runtime::PackedFunc;
using tvm::runtime::TVMArgs;
using tvm::runtime::TVMRetValue;
using tvm::runtime::cl::BufferDescriptor;

GpuList::GpuList(const Program& program, const std::vector<Module>& libraries, OpenCLDevice device, Memory* memory)
    : program_(program), device_(device), memory_(memory) {
  cl_int status = CL_SUCCESS;
  plain_.reset(clCreateCommandQueue(device.context, device.device, 0, &status));
  Check(status, "clCreateCommandQueue");
  profiled_.reset(clCreateCommandQueue(device.context, device.device, CL_QUEUE_PROFILING_ENABLE, &status));
  Check(status, "clCreateCommandQueue");
  const auto events = static_cast<size_t>(program.events);
  cpu_events_.resize(events);
  cpu_signalled_.resize(events, 0);
  gpu_events_.resize(events);
  gpu_signal_at_.resize(events, 0);
  throttle_.resize(kThrottleSlots);
  for (size_t i = 0; i < program.gpu.size(); ++i) {
    Compile(i, libraries);
    command_end_.push_back(commands_.size());
  }
  commands_of_.resize(program.regions.size());
  for (size_t i = 0; i < commands_.size(); ++i) {
    const Command& command = commands_[i];
    if (command.type != Command::Type::kLaunch && command.type != Command::Type::kCopy) continue;
    const int region = program.gpu[command.step].region;
    if (region >= 0) commands_of_[static_cast<size_t>(region)].push_back(i);
  }
  profile_.reserve(commands_.size());
}

void GpuList::Compile(size_t index, const std::vector<Module>& libraries) {
  const Step& step = program_.gpu[index];
  switch (step.what) {
    case Do::kWait:
      commands_.push_back({Command::Type::kWait, static_cast<size_t>(step.event), index});
      return;
    case Do::kSignal:
      gpu_signal_at_[static_cast<size_t>(step.event)] = commands_.size();
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
      Record(index, FindFunction(libraries, step.function));
  }
}

// A workspace that TVM's pool lent for the recorded call: the pool will lend it again, so the replay has its own.
cl_mem GpuList::Scratch(cl_mem pooled) {
  size_t bytes = 0;
  Check(clGetMemObjectInfo(pooled, CL_MEM_SIZE, sizeof(bytes), &bytes, nullptr), "clGetMemObjectInfo");
  cl_mem& own = scratch_of_[{pooled, bytes}];
  if (own == nullptr) {
    scratch_.push_back(memory_->NewDeviceBuffer(bytes));
    own = scratch_.back().get();
  }
  return own;
}

GpuList::Place GpuList::PlaceOf(const View& view) const {
  Place place;
  place.mem = memory_->Parent(view);
  place.offset = static_cast<size_t>(memory_->Offset(view));
  if (place.mem == nullptr) place.svm = memory_->Host(view);
  return place;
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
  std::vector<Copy> after;
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
    if (!device_args[i].usable()) {
      scratch_.push_back(memory_->NewDeviceBuffer(static_cast<size_t>(view.bytes)));
      device_args[i].mem = scratch_.back().get();
      const Place bounce{device_args[i].mem, 0, nullptr};
      const auto bytes = static_cast<size_t>(view.bytes);
      if (i < first_output) {
        commands_.push_back({Command::Type::kCopy, copies_.size(), index});
        copies_.push_back({PlaceOf(view), bounce, bytes, true});
      } else {
        after.push_back({bounce, PlaceOf(view), bytes, true});
      }
    }
  }

  std::vector<RecordedLaunch> recorded;
  {
    LaunchRecorder recorder;
    TVMRetValue result;
    function.CallPacked(TVMArgs(values.data(), codes.data(), static_cast<int>(n)), &result);
    recorded = recorder.Take();
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
    for (const auto& [arg, bytes] : record.args) {
      cl_mem mem = nullptr;
      if (bytes.size() == sizeof(mem)) std::memcpy(&mem, bytes.data(), sizeof(mem));
      auto token = by_token.find(mem);
      if (token != by_token.end()) {
        const Memory::DeviceArg& device_arg = device_args[token->second];
        if (device_arg.svm != nullptr) {
          Check(clSetKernelArgSVMPointer(launch.kernel.get(), arg, device_arg.svm), "clSetKernelArgSVMPointer");
        } else {
          Check(clSetKernelArg(launch.kernel.get(), arg, sizeof(cl_mem), &device_arg.mem), "clSetKernelArg");
        }
      } else if (bytes.size() == sizeof(mem)) {
        const cl_mem scratch = Scratch(mem);
        Check(clSetKernelArg(launch.kernel.get(), arg, sizeof(cl_mem), &scratch), "clSetKernelArg");
      } else {
        Check(clSetKernelArg(launch.kernel.get(), arg, bytes.size(), bytes.data()), "clSetKernelArg");
      }
    }
    commands_.push_back({Command::Type::kLaunch, launches_.size(), index});
    launches_.push_back(std::move(launch));
  }
  for (const Copy& copy : after) {
    commands_.push_back({Command::Type::kCopy, copies_.size(), index});
    copies_.push_back(copy);
  }
}

}  // namespace tvm_codl
