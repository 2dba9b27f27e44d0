#include "gpu_list.h"

#include <opencl_common.h>

#include <algorithm>
#include <cstring>

#include "../opencl/launch_recorder.h"
#include "cpu_list.h"

namespace tvm_codl {

using tvm::runtime::Module;
using tvm::runtime::PackedFunc;
using tvm::runtime::TVMArgs;
using tvm::runtime::TVMRetValue;
using tvm::runtime::cl::BufferDescriptor;

namespace {

// Unbounded enqueueing ends in CL_OUT_OF_HOST_MEMORY on some drivers: at most kThrottleEvery * kThrottleSlots commands
// are in flight.
constexpr size_t kThrottleEvery = 32;
constexpr size_t kThrottleSlots = 4;

}  // namespace

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
  place.mem = memory_->Parent(view.buffer);
  place.offset = static_cast<size_t>(view.offset);
  if (place.mem == nullptr) place.svm = memory_->Host(view);
  return place;
}

void GpuList::EnqueueCopy(const Copy& copy, cl_uint waits, const cl_event* wait_list, cl_event* done) {
  const Place& from = copy.from;
  const Place& to = copy.to;
  cl_int status = CL_SUCCESS;
  if (from.svm != nullptr && to.svm != nullptr) {
    status = clEnqueueSVMMemcpy(queue(), CL_FALSE, to.svm, from.svm, copy.bytes, waits, wait_list, done);
  } else if (from.svm != nullptr) {
    status = clEnqueueWriteBuffer(queue(), to.mem, CL_FALSE, to.offset, copy.bytes, from.svm, waits, wait_list, done);
  } else if (to.svm != nullptr) {
    status = clEnqueueReadBuffer(queue(), from.mem, CL_FALSE, from.offset, copy.bytes, to.svm, waits, wait_list, done);
  } else {
    status = clEnqueueCopyBuffer(queue(), from.mem, to.mem, from.offset, to.offset, copy.bytes, waits, wait_list, done);
  }
  Check(status, "copying between buffers");
  if (copy.counted) copied_bytes_ += static_cast<int64_t>(copy.bytes);
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

void GpuList::Begin(bool profile) {
  profiling_ = profile;
  profile_.clear();
  fed_steps_ = fed_commands_ = 0;
  copied_bytes_ = 0;
  since_throttle_ = 0;
  pending_wait_ = nullptr;
  std::fill(cpu_signalled_.begin(), cpu_signalled_.end(), 0);
  memory_->BeginRun(queue());
}

void GpuList::Enqueue(const Command& command, cl_event* done) {
  const cl_uint waits = pending_wait_ != nullptr ? 1 : 0;
  const cl_event* wait_list = waits != 0 ? &pending_wait_ : nullptr;
  switch (command.type) {
    case Command::Type::kLaunch: {
      const Launch& launch = launches_[command.index];
      Check(clEnqueueNDRangeKernel(queue(), launch.kernel.get(), launch.dims, nullptr, launch.global.data(),
                                   launch.local[0] != 0 ? launch.local.data() : nullptr, waits, wait_list, done),
            "clEnqueueNDRangeKernel");
      break;
    }
    case Command::Type::kCopy:
      EnqueueCopy(copies_[command.index], waits, wait_list, done);
      break;
    case Command::Type::kTransfer: {
      const Step& step = program_.gpu[command.step];
      copied_bytes_ += step.what == Do::kToGpu ? memory_->EnqueueToGpu(queue(), step.args[0], waits, wait_list, done)
                                               : memory_->EnqueueToCpu(queue(), step.args[0], waits, wait_list, done);
      break;
    }
    default:
      Check(clEnqueueMarkerWithWaitList(queue(), waits, wait_list, done), "clEnqueueMarkerWithWaitList");
  }
  pending_wait_ = nullptr;
}

void GpuList::Feed(size_t until) {
  if (until <= fed_steps_) return;
  const size_t end = command_end_[until - 1];
  for (; fed_commands_ < end; ++fed_commands_) {
    const Command& command = commands_[fed_commands_];
    if (command.type == Command::Type::kWait) {
      if (cpu_signalled_[command.index]) continue;
      // Two waits in a row: an in-order queue needs a command to carry the first.
      if (pending_wait_ != nullptr) Enqueue(command, nullptr);
      cl_int status = CL_SUCCESS;
      cpu_events_[command.index].reset(clCreateUserEvent(device_.context, &status));
      Check(status, "clCreateUserEvent");
      pending_wait_ = cpu_events_[command.index].get();
      continue;
    }
    // A signal rides on the command before it, so that it costs none of its own.
    const bool signal_next =
        fed_commands_ + 1 < commands_.size() && commands_[fed_commands_ + 1].type == Command::Type::kSignal;
    if (command.type == Command::Type::kSignal) {
      if (!gpu_events_[command.index]) {
        cl_event done = nullptr;
        Enqueue(command, &done);
        gpu_events_[command.index].reset(done);
      }
      continue;
    }
    const bool last = fed_commands_ + (signal_next ? 2 : 1) == commands_.size();
    const bool throttle = ++since_throttle_ >= kThrottleEvery;
    cl_event done = nullptr;
    Enqueue(command, profiling_ || signal_next || last || throttle ? &done : nullptr);
    if (done == nullptr) continue;
    Event owned(done);
    auto share = [&owned] {
      clRetainEvent(owned.get());
      return Event(owned.get());
    };
    if (profiling_) profile_.emplace_back(fed_commands_, share());
    if (signal_next) gpu_events_[commands_[fed_commands_ + 1].index] = share();
    if (throttle) {
      since_throttle_ = 0;
      Event& slot = throttle_[throttle_next_++ % kThrottleSlots];
      if (slot) {
        Check(clFlush(queue()), "clFlush");
        WaitFor(slot.get(), 0);
      }
      slot = share();
    }
    if (last) last_ = std::move(owned);
  }
  fed_steps_ = until;
  Check(clFlush(queue()), "clFlush");
}

void GpuList::Signal(int event) {
  const auto index = static_cast<size_t>(event);
  cpu_signalled_[index] = 1;
  if (!cpu_events_[index]) return;
  Check(clSetUserEventStatus(cpu_events_[index].get(), CL_COMPLETE), "clSetUserEventStatus");
  cpu_events_[index].reset();
}

void GpuList::WaitFor(cl_event event, int spin_us) const {
  // Sleeping and being woken costs more than the wait itself when the other processor is nearly done.
  const int64_t deadline = HostNow() + int64_t{1000} * spin_us;
  while (spin_us > 0) {
    cl_int status = CL_QUEUED;
    Check(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, nullptr), "clGetEventInfo");
    if (status < 0) Check(status, "a GPU command");
    if (status == CL_COMPLETE) return;
    if (HostNow() > deadline) break;
  }
  Check(clWaitForEvents(1, &event), "clWaitForEvents");
}

void GpuList::Wait(int event, int spin_us) {
  Event& done = gpu_events_[static_cast<size_t>(event)];
  WaitFor(done.get(), spin_us);
  done.reset();
}

void GpuList::Finish(int spin_us) {
  if (pending_wait_ != nullptr || (!last_ && !commands_.empty())) {
    // The list ends in a wait or a signal: a marker stands for its end.
    cl_event done = nullptr;
    Enqueue({Command::Type::kSignal, 0, 0}, &done);
    last_.reset(done);
    Check(clFlush(queue()), "clFlush");
  }
  if (last_) WaitFor(last_.get(), spin_us);
  last_.reset();
  for (Event& event : gpu_events_) event.reset();
  for (Event& event : throttle_) event.reset();
  memory_->EndRun(queue());
}

void GpuList::Abandon() noexcept {
  for (Event& event : cpu_events_) {
    if (event) clSetUserEventStatus(event.get(), CL_COMPLETE);
    event.reset();
  }
  clFinish(queue());
  pending_wait_ = nullptr;
  last_.reset();
  for (Event& event : gpu_events_) event.reset();
  for (Event& event : throttle_) event.reset();
}

int64_t GpuList::TimeRegion(int region, int number, int spin_us) {
  Begin(false);
  const int64_t start = HostNow();
  for (int i = 0; i < number; ++i) {
    for (size_t j = 0; j < commands_.size(); ++j) {
      const Command& command = commands_[j];
      if (program_.gpu[command.step].region != region) continue;
      if (command.type != Command::Type::kLaunch && command.type != Command::Type::kCopy) continue;
      Enqueue(command, nullptr);
    }
  }
  cl_event done = nullptr;
  Enqueue({Command::Type::kSignal, 0, 0}, &done);
  Event last(done);
  Check(clFlush(queue()), "clFlush");
  WaitFor(last.get(), spin_us);
  const int64_t taken = HostNow() - start;
  memory_->EndRun(queue());
  return taken;
}

int64_t GpuList::TimeRegionOnDevice(int region, int spin_us) {
  Begin(true);
  std::vector<Event> events;
  for (const Command& command : commands_) {
    if (program_.gpu[command.step].region != region) continue;
    if (command.type != Command::Type::kLaunch && command.type != Command::Type::kCopy) continue;
    cl_event done = nullptr;
    Enqueue(command, &done);
    events.emplace_back(done);
  }
  Check(clFlush(queue()), "clFlush");
  cl_ulong start = 0, end = 0;
  if (!events.empty()) {
    WaitFor(events.back().get(), spin_us);
    Check(clGetEventProfilingInfo(events.front().get(), CL_PROFILING_COMMAND_START, sizeof(start), &start, nullptr),
          "clGetEventProfilingInfo");
    Check(clGetEventProfilingInfo(events.back().get(), CL_PROFILING_COMMAND_END, sizeof(end), &end, nullptr),
          "clGetEventProfilingInfo");
  }
  memory_->EndRun(queue());
  return static_cast<int64_t>(end - start);
}

void GpuList::CalibrateClock() {
  // The smallest difference between "now" and a just completed command's end is nearest to the clocks' offset.
  int64_t best = INT64_MAX;
  for (int i = 0; i < 8; ++i) {
    cl_event done = nullptr;
    Check(clEnqueueMarkerWithWaitList(profiled_.get(), 0, nullptr, &done), "clEnqueueMarkerWithWaitList");
    Event marker(done);
    Check(clFlush(profiled_.get()), "clFlush");
    WaitFor(marker.get(), 1000);
    const int64_t now = HostNow();
    cl_ulong end = 0;
    if (clGetEventProfilingInfo(marker.get(), CL_PROFILING_COMMAND_END, sizeof(end), &end, nullptr) != CL_SUCCESS)
      return;
    best = std::min(best, now - static_cast<int64_t>(end));
  }
  clock_offset_ = best;
}

void GpuList::Collect(std::vector<Span>* spans) const {
  const_cast<GpuList*>(this)->CalibrateClock();
  for (const auto& [index, event] : profile_) {
    const Command& command = commands_[index];
    cl_ulong start = 0, end = 0;
    Check(clGetEventProfilingInfo(event.get(), CL_PROFILING_COMMAND_START, sizeof(start), &start, nullptr),
          "clGetEventProfilingInfo");
    Check(clGetEventProfilingInfo(event.get(), CL_PROFILING_COMMAND_END, sizeof(end), &end, nullptr),
          "clGetEventProfilingInfo");
    Span span;
    span.start = static_cast<int64_t>(start) + clock_offset_;
    span.end = static_cast<int64_t>(end) + clock_offset_;
    span.region = program_.gpu[command.step].region;
    span.step = static_cast<int>(command.step);
    span.kind = command.type == Command::Type::kLaunch ? Kind::kKernel : Kind::kShare;
    span.gpu = true;
    spans->push_back(span);
  }
}

}  // namespace tvm_codl
