// One region of the GPU list by itself, for measuring.
#include <algorithm>

#include "gpu_list.h"

namespace tvm_codl {

namespace {

// Half of what goes through a GPU's caches between two runs, at most: more than they hold.
constexpr size_t kColdHalf = size_t{64} << 20;

int64_t DeviceClock(const Event& event, cl_profiling_info what) {
  cl_ulong at = 0;
  Check(clGetEventProfilingInfo(event.get(), what, sizeof(at), &at, nullptr), "clGetEventProfilingInfo");
  return static_cast<int64_t>(at);
}

}  // namespace

int64_t GpuList::TimeRegion(int region, int number, int spin_us) {
  Begin(false);
  const int64_t start = HostNow();
  for (int i = 0; i < number; ++i) {
    for (size_t command : CommandsOf(region)) Enqueue(commands_[command], nullptr);
  }
  return FinishSince(start, spin_us);
}

int64_t GpuList::FinishSince(int64_t start, int spin_us) {
  cl_event done = nullptr;
  Enqueue({Command::Type::kSignal, 0, 0}, &done);
  Event last(done);
  Check(clFlush(queue()), "clFlush");
  WaitFor(last.get(), spin_us);
  const int64_t taken = HostNow() - start;
  memory_->EndRun(queue());
  return taken;
}

int64_t GpuList::TimeCold(int region, int number, const std::vector<View>& inputs, int64_t network_bytes, bool run,
                          int spin_us) {
  const size_t half = static_cast<size_t>(std::clamp<int64_t>(network_bytes / 2, 1, kColdHalf));
  if (cold_half_ < half) {
    cold_half_ = 0;
    cold_.reset();  // before there is a larger one
    cold_ = memory_->NewDeviceBuffer(2 * half);
    cold_half_ = half;
  }
  const auto copy = [&](cl_mem from, size_t at, size_t to, size_t bytes) {
    Check(clEnqueueCopyBuffer(queue(), from, cold_.get(), at, to, bytes, 0, nullptr, nullptr), "clEnqueueCopyBuffer");
  };
  Begin(false);
  const int64_t start = HostNow();
  for (int i = 0; i < number; ++i) {
    copy(cold_.get(), 0, half, half);
    for (const View& view : inputs) {
      copy(memory_->Parent(view), static_cast<size_t>(memory_->Offset(view)), 0,
           std::min(static_cast<size_t>(view.bytes), half));
    }
    if (!run) continue;
    for (size_t command : CommandsOf(region)) Enqueue(commands_[command], nullptr);
  }
  return FinishSince(start, spin_us);
}

int64_t GpuList::TimeRegionOnDevice(int region, int spin_us) {
  const std::vector<size_t>& commands = CommandsOf(region);
  Begin(true);
  Event first, last;
  for (size_t i = 0; i < commands.size(); ++i) {
    cl_event done = nullptr;
    const bool ends = i == 0 || i + 1 == commands.size();
    Enqueue(commands_[commands[i]], ends ? &done : nullptr);
    if (i == 0) {
      Check(clRetainEvent(done), "clRetainEvent");
      first.reset(done);
    }
    if (ends) last.reset(done);
  }
  Check(clFlush(queue()), "clFlush");
  int64_t taken = 0;
  if (last) {
    WaitFor(last.get(), spin_us);
    taken = DeviceClock(last, CL_PROFILING_COMMAND_END) - DeviceClock(first, CL_PROFILING_COMMAND_START);
  }
  memory_->EndRun(queue());
  return taken;
}

int GpuList::MostRuns(int region) const {
  const size_t each = std::max<size_t>(CommandsOf(region).size(), 1);
  return static_cast<int>(std::max<size_t>(kMostInFlight / each, 1));
}

GpuList::Laps GpuList::StartLaps(int region, int runs) {
  const std::vector<size_t>& commands = CommandsOf(region);
  if (commands.empty()) throw std::runtime_error("the region " + std::to_string(region) + " does nothing on the GPU");
  Begin(true);
  Laps laps;
  for (int run = 0; run < runs; ++run) {
    for (size_t i = 0; i < commands.size(); ++i) {
      const bool ends = i + 1 == commands.size() && (run == 0 || run + 1 == runs);
      cl_event done = nullptr;
      Enqueue(commands_[commands[i]], ends ? &done : nullptr);
      if (ends) (run == 0 ? laps.first : laps.last).reset(done);
    }
  }
  Check(clFlush(queue()), "clFlush");
  return laps;
}

bool GpuList::Done(const Event& event) const {
  cl_int status = CL_QUEUED;
  Check(clGetEventInfo(event.get(), CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, nullptr),
        "clGetEventInfo");
  if (status < 0) Check(status, "a GPU command");
  return status == CL_COMPLETE;
}

int64_t GpuList::FinishLaps(const Laps& laps, int spin_us) {
  WaitFor(laps.last.get(), spin_us);
  const int64_t taken =
      DeviceClock(laps.last, CL_PROFILING_COMMAND_END) - DeviceClock(laps.first, CL_PROFILING_COMMAND_END);
  memory_->EndRun(queue());
  return taken;
}

}  // namespace tvm_codl
