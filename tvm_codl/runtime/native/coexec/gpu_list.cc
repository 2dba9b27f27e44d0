#include "gpu_list.h"

#include <algorithm>
#include <exception>

namespace tvm_codl {

namespace {

// Unbounded enqueueing ends in CL_OUT_OF_HOST_MEMORY on some drivers.
constexpr size_t kThrottleEvery = GpuList::kMostInFlight / GpuList::kThrottleSlots;

}  // namespace

// A driver may still be about to drop what finished commands used: that a command's event is complete does not say that
// it has.
GpuList::~GpuList() {
  for (const Queues* queues : {&plain_, &profiled_}) {
    for (const Queue& lane : *queues) {
      if (lane) clFinish(lane.get());
    }
  }
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

void GpuList::Begin(bool profile, int spin_us) {
  profiling_ = profile;
  gate_spin_us_ = spin_us;
  profile_.clear();
  fed_steps_ = fed_commands_ = 0;
  copied_bytes_ = 0;
  since_flush_ = since_throttle_ = 0;
  pending_wait_ = nullptr;
  waits_.clear();
  unflushed_.fill(false);
  std::fill(cpu_signalled_.begin(), cpu_signalled_.end(), 0);
  memory_->BeginRun(queue());
}

// What the command's lane must wait for, into waits_.
void GpuList::CollectWaits(const Command& command) {
  waits_.clear();
  if (pending_wait_ != nullptr) waits_.push_back(pending_wait_);
  for (size_t before : command.after) waits_.push_back(done_[before].get());
  for (size_t event : command.releases) {
    if (cpu_events_[event]) waits_.push_back(cpu_events_[event].get());
  }
}

void GpuList::Enqueue(const Command& command, cl_event* done) {
  const auto waits = static_cast<cl_uint>(waits_.size());
  const cl_event* wait_list = waits != 0 ? waits_.data() : nullptr;
  const cl_command_queue lane = queue(command.lane);
  switch (command.type) {
    case Command::Type::kLaunch: {
      const Launch& launch = launches_[command.index];
      Check(clEnqueueNDRangeKernel(lane, launch.kernel.get(), launch.dims, nullptr, launch.global.data(),
                                   launch.local[0] != 0 ? launch.local.data() : nullptr, waits, wait_list, done),
            "clEnqueueNDRangeKernel");
      break;
    }
    case Command::Type::kCopy:
      EnqueueCopy(copies_[command.index], waits, wait_list, done);
      break;
    case Command::Type::kTransfer: {
      const Step& step = program_.gpu[command.step];
      copied_bytes_ += step.what == Do::kToGpu ? memory_->EnqueueToGpu(lane, step.args[0], waits, wait_list, done)
                                               : memory_->EnqueueToCpu(lane, step.args[0], waits, wait_list, done);
      break;
    }
    default:
      Check(clEnqueueMarkerWithWaitList(lane, waits, wait_list, done), "clEnqueueMarkerWithWaitList");
  }
  pending_wait_ = nullptr;
  waits_.clear();
  unflushed_[static_cast<size_t>(command.lane)] = true;
  if (++since_flush_ == flush_every) Flush();
}

// A command of its own for a signal that does not ride.
void GpuList::EnqueueSignal(size_t command) {
  const Command& signal = commands_[command];
  if (gpu_events_[signal.index]) return;
  CollectWaits(signal);
  cl_event done = nullptr;
  Enqueue(signal, &done);
  gpu_events_[signal.index].reset(done);
  if (!signal.awaited) return;
  Check(clRetainEvent(done), "clRetainEvent");
  done_[command].reset(done);
}

void GpuList::Flush() {
  for (size_t lane = 0; lane < kLanes; ++lane) {
    if (std::exchange(unflushed_[lane], false)) Check(clFlush(queue(static_cast<Lane>(lane))), "clFlush");
  }
  since_flush_ = 0;
}

bool GpuList::Held(size_t command) const {
  for (size_t event = 0; event < cpu_events_.size(); ++event) {
    if ((cpu_events_[event] || gate_shut_[event]) && wait_at_[event] < command) return true;
  }
  return false;
}

void GpuList::Feed(size_t until) {
  if (until <= fed_steps_) return;
  const size_t end = command_end_[until - 1];
  for (; fed_commands_ < end; ++fed_commands_) {
    const Command& command = commands_[fed_commands_];
    if (command.type == Command::Type::kWait) {
      if (cpu_signalled_[command.index]) continue;
      wait_at_[command.index] = fed_commands_;
      if (!gates_.empty()) {
        gates_[command.index]->Enqueue(queue(), gate_spin_us_);
        gate_shut_[command.index] = 1;
        unflushed_.front() = true;
        if (++since_flush_ == flush_every) Flush();
        continue;
      }
      if (pending_wait_ != nullptr) {
        // Two waits in a row: an in-order queue needs a command to carry the first.
        CollectWaits(command);
        Enqueue(command, nullptr);
      }
      cl_int status = CL_SUCCESS;
      cpu_events_[command.index].reset(clCreateUserEvent(device_.context, &status));
      Check(status, "clCreateUserEvent");
      if (!lanes_) pending_wait_ = cpu_events_[command.index].get();
      continue;
    }
    // A signal rides on the command before it, so that it costs none of its own.
    const bool signal_next = fed_commands_ + 1 < commands_.size() &&
                             commands_[fed_commands_ + 1].type == Command::Type::kSignal &&
                             (!lanes_ || commands_[fed_commands_ + 1].rides);
    if (command.type == Command::Type::kSignal) {
      EnqueueSignal(fed_commands_);
      continue;
    }
    const bool last = !lanes_ && fed_commands_ + (signal_next ? 2 : 1) == commands_.size();
    const bool throttle = since_throttle_ + 1 >= kThrottleEvery;
    const size_t turn = throttle_next_ % kThrottleSlots;
    if (throttle && throttle_[turn] && Held(throttle_at_[turn])) {
      // To wait for it here would be for ever: only this thread signals.
      if (since_flush_ != 0) Flush();
      return;
    }
    ++since_throttle_;
    cl_event done = nullptr;
    CollectWaits(command);
    Enqueue(command, profiling_ || signal_next || last || throttle || command.awaited ? &done : nullptr);
    if (done == nullptr) continue;
    Event owned(done);
    auto share = [&owned] {
      clRetainEvent(owned.get());
      return Event(owned.get());
    };
    if (profiling_) profile_.emplace_back(fed_commands_, share());
    if (signal_next) gpu_events_[commands_[fed_commands_ + 1].index] = share();
    if (command.awaited) done_[fed_commands_] = share();
    if (throttle) {
      since_throttle_ = 0;
      ++throttle_next_;
      if (throttle_[turn]) {
        Flush();
        WaitFor(throttle_[turn].get(), 0);
      }
      throttle_[turn] = share();
      throttle_at_[turn] = fed_commands_;
    }
    if (last) last_ = std::move(owned);
  }
  fed_steps_ = until;
  if (since_flush_ != 0) Flush();
}

void GpuList::Signal(int event) {
  const auto index = static_cast<size_t>(event);
  cpu_signalled_[index] = 1;
  if (std::exchange(gate_shut_[index], 0)) gates_[index]->Open();
  if (!cpu_events_[index]) return;
  // No command carries the wait yet, and none needs to.
  if (pending_wait_ == cpu_events_[index].get()) pending_wait_ = nullptr;
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
    // To have asked is no promise that what the GPU wrote is seen here; to have waited is.
    if (status == CL_COMPLETE || HostNow() > deadline) break;
  }
  Check(clWaitForEvents(1, &event), "clWaitForEvents");
}

void GpuList::Wait(int event, int spin_us) {
  Event& done = gpu_events_[static_cast<size_t>(event)];
  WaitFor(done.get(), spin_us);
  done.reset();
}

void GpuList::Finish(int spin_us) {
  if (!lanes_ && (pending_wait_ != nullptr || (!last_ && !commands_.empty()))) {
    // The list ends in a wait or a signal: a marker stands for its end.
    const Command end{Command::Type::kSignal, 0, 0};
    CollectWaits(end);
    cl_event done = nullptr;
    Enqueue(end, &done);
    last_.reset(done);
    Flush();
  }
  if (last_) WaitFor(last_.get(), spin_us);
  for (size_t end : lane_ends_) WaitFor(done_[end].get(), spin_us);
  ForgetEvents();
  memory_->EndRun(queue());
}

void GpuList::ForgetEvents() {
  last_.reset();
  for (auto* events : {&gpu_events_, &throttle_, &done_}) {
    for (Event& event : *events) event.reset();
  }
}

void GpuList::Abandon() noexcept {
  for (size_t event = 0; event < gates_.size(); ++event) {
    if (std::exchange(gate_shut_[event], 0)) gates_[event]->Open();
  }
  for (Event& event : cpu_events_) {
    if (event) clSetUserEventStatus(event.get(), CL_COMPLETE);
    event.reset();
  }
  for (const Queue& lane : profiling_ ? profiled_ : plain_) {
    if (lane) clFlush(lane.get());
  }
  for (const Queue& lane : profiling_ ? profiled_ : plain_) {
    if (lane) clFinish(lane.get());
  }
  pending_wait_ = nullptr;
  ForgetEvents();
  try {
    memory_->EndRun(queue());  // what was the GPU's is the CPU's again
  } catch (const std::exception&) {
    // What the run failed of is told already.
  }
}

void GpuList::CalibrateClock() {
  // The smallest difference between "now" and a just completed command's end is nearest to the clocks' offset.
  const cl_command_queue clock = profiled_.front().get();
  int64_t best = INT64_MAX;
  for (int i = 0; i < 8; ++i) {
    cl_event done = nullptr;
    Check(clEnqueueMarkerWithWaitList(clock, 0, nullptr, &done), "clEnqueueMarkerWithWaitList");
    Event marker(done);
    Check(clFlush(clock), "clFlush");
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
