// One region of the GPU list by itself, for measuring.
#include <algorithm>

#include "gpu_list.h"

namespace tvm_codl {

namespace {

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
