// The GPU's steps as commands that are replayed: kernels with their arguments set, copies, transfers, waits, signals.
#ifndef TVM_CODL_COEXEC_GPU_LIST_H_
#define TVM_CODL_COEXEC_GPU_LIST_H_

#include <tvm/runtime/module.h>

#include <array>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "cl_handle.h"
#include "gate.h"
#include "memory.h"
#include "program.h"
#include "timeline.h"

namespace tvm_codl {

class GpuList {
 public:
  // Calls every function of the list once, recording its launches.  Throws where a kernel does not build.
  GpuList(const Program& program, const std::vector<tvm::runtime::Module>& libraries, OpenCLDevice device,
          Memory* memory);
  ~GpuList();

  // Enqueues steps [fed, until), and flushes after every `flush_every` commands and at the end: what is enqueued never
  // stays behind while the CPU works or waits.  Where the queue is full of what waits for the CPU, the next call goes
  // on.
  void Feed(size_t until);
  bool Behind(size_t until) const { return fed_steps_ < until; }
  // `profile` uses the queue with profiling and keeps every event.  Where the list waits for the CPU in gates, these
  // spin for `spin_us`.
  void Begin(bool profile, int spin_us = 0);
  // The CPU's side of the events.
  void Signal(int event);
  void Wait(int event, int spin_us);
  // Waits for everything that was enqueued.
  void Finish(int spin_us);
  // Gives up a run that failed half-way: releases what the GPU may still wait for, then waits for it.
  void Abandon() noexcept;

  // One region alone, `number` times over; returns its time in ns.
  int64_t TimeRegion(int region, int number, int spin_us);
  // `number` times: other bytes, as many as the network has (128 MB at most), go through the GPU's caches, `inputs` are
  // read, and, where `run` says so, the region runs.  Only where memories are two.  Returns ns of all.
  int64_t TimeCold(int region, int number, const std::vector<View>& inputs, int64_t network_bytes, bool run,
                   int spin_us);
  // TimeRegion's, once, from the device's own clock: from its first command's start to its last one's end.
  int64_t TimeRegionOnDevice(int region, int spin_us);

  // A region again and again, for as long as something else is watched or as it is watched itself: `runs` (>= 2) of it
  // are enqueued and flushed, at most MostRuns.  `first` and `last` complete with the first and the last of them.
  struct Laps {
    Event first, last;
  };
  int MostRuns(int region) const;
  Laps StartLaps(int region, int runs);
  bool Done(const Event& event) const;
  void Await(const Event& event, int spin_us) const { WaitFor(event.get(), spin_us); }
  // Waits for the last run; returns the time from the end of the first run to that of the last, by the device's clock,
  // in ns.
  int64_t FinishLaps(const Laps& laps, int spin_us);

  // Commands between two flushes while they are enqueued; 0: only the one at the end.
  size_t flush_every = 0;

  // At most so many commands are in flight.
  static constexpr size_t kMostInFlight = 128;
  static constexpr size_t kThrottleSlots = 4;

  int64_t copied_bytes() const { return copied_bytes_; }
  // The queue of kernels.
  cl_command_queue queue() const { return queue(Lane::kKernels); }
  // After a profiled run: its spans, in the host's clock.
  void Collect(std::vector<Span>* spans) const;

 private:
  // In-order queues.  Where memories are two, transfers have one for each direction, and run beside kernels; elsewhere
  // all is in kKernels.
  enum class Lane : uint8_t { kKernels, kToGpu, kToCpu };
  static constexpr size_t kLanes = 3;
  using Queues = std::array<Queue, kLanes>;

  struct Launch {
    Kernel kernel;
    cl_uint dims = 0;
    std::array<size_t, 3> global{};
    std::array<size_t, 3> local{};
  };
  // One end of a copy: shared virtual memory, or a place in a buffer.
  struct Place {
    cl_mem mem = nullptr;
    size_t offset = 0;
    void* svm = nullptr;
  };
  struct Copy {
    Place from, to;
    size_t bytes = 0;
    bool counted = true;  // a copy that the network itself asks for (a reshape) is none of sharing's
  };
  // Memory that a call needs beside its arguments.  The queue is in order: what one call is done with serves the next,
  // so calls share slots, each as large as the largest that any call puts there.
  struct Loan {
    enum class For { kKernelArg, kCopyFrom, kCopyTo } what;
    size_t index = 0;  // of launches_ or copies_
    cl_uint arg = 0;
    size_t slot = 0;
  };
  struct Command {
    enum class Type { kLaunch, kCopy, kTransfer, kWait, kSignal } type;
    size_t index = 0;  // of launches_, copies_; or the event
    size_t step = 0;
    // Where memories are two (gpu_lanes.cc):
    Lane lane = Lane::kKernels;
    bool rides = false;              // a signal that is the completion of the command before it
    bool awaited = false;            // by a command of another lane, or by the end of the run
    std::vector<size_t> after{};     // commands of other lanes that end before this one starts
    std::vector<size_t> releases{};  // CPU's events before which it does not start
  };

  void Compile(size_t step, const std::vector<tvm::runtime::Module>& libraries);
  void Record(size_t step, const tvm::runtime::PackedFunc& function);
  cl_mem OwnImage(cl_mem recorded, std::map<cl_mem, cl_mem>* own);
  void FillImages();
  void RecordAll(const std::vector<tvm::runtime::Module>& libraries);
  void GiveSlots(const std::map<cl_mem, size_t>& wanted, const std::vector<std::pair<cl_mem, Loan>>& loans);
  void Lend();
  void OrderLanes();
  void CollectWaits(const Command& command);
  Place PlaceOf(const View& view) const;
  void EnqueueCopy(const Copy& copy, cl_uint waits, const cl_event* wait_list, cl_event* done);
  void Enqueue(const Command& command, cl_event* done);
  void EnqueueSignal(size_t command);
  cl_command_queue queue(Lane lane) const { return (profiling_ ? profiled_ : plain_)[static_cast<size_t>(lane)].get(); }
  void Flush();
  void ForgetEvents();
  // Whether a command that was enqueued is behind a wait for what the CPU has not signalled yet.
  bool Held(size_t command) const;
  void WaitFor(cl_event event, int spin_us) const;
  // Waits for everything that was enqueued since `start`, in ns; returns how long that took.
  int64_t FinishSince(int64_t start, int spin_us);
  void CalibrateClock();
  // The launches and copies of a region, in order.
  const std::vector<size_t>& CommandsOf(int region) const { return commands_of_[static_cast<size_t>(region)]; }

  const Program& program_;
  OpenCLDevice device_;
  Memory* memory_;
  Queues plain_;
  Queues profiled_;
  bool lanes_ = false;  // memories are two
  std::vector<Launch> launches_;
  std::vector<Copy> copies_;
  std::vector<Mem> scratch_;           // by slot
  std::vector<size_t> scratch_bytes_;  // by slot
  std::vector<Loan> loans_;            // until the slots have their memory
  std::vector<char> is_weight_;        // by buffer
  std::vector<Mem> images_;            // weights once more, in the form in which kernels read them
  Mem cold_;                           // for TimeCold, twice as large as cold_half_
  size_t cold_half_ = 0;
  std::vector<Launch> fills_;  // what fills images, until it has run
  std::vector<Command> commands_;
  std::vector<size_t> lane_ends_;                 // the last command of each lane
  std::vector<size_t> command_end_;               // by step: one past its last command
  std::vector<std::vector<size_t>> commands_of_;  // by region

  // State of one run.
  bool profiling_ = false;
  size_t fed_steps_ = 0;
  size_t fed_commands_ = 0;
  cl_event pending_wait_ = nullptr;  // of one memory
  int gate_spin_us_ = 0;
  std::vector<std::unique_ptr<Gate>> gates_;  // by event, where the device has them; in place of user events
  std::vector<char> gate_shut_;               // by event: enqueued and not opened
  std::vector<Event> cpu_events_;             // user events that the CPU sets
  std::vector<char> cpu_signalled_;
  std::vector<size_t> wait_at_;  // by event: the command that waits for it
  std::vector<Event> gpu_events_;
  std::vector<Event> throttle_;                       // every so many commands, to bound the queue
  std::array<size_t, kThrottleSlots> throttle_at_{};  // which commands these are
  Event last_;
  std::vector<Event> done_;      // by command: of those that are awaited
  std::vector<cl_event> waits_;  // of the command that is being enqueued
  std::array<bool, kLanes> unflushed_{};
  std::vector<std::pair<size_t, Event>> profile_;  // command, event
  int64_t copied_bytes_ = 0;
  int64_t clock_offset_ = 0;  // host minus device, ns
  size_t since_flush_ = 0;
  size_t since_throttle_ = 0;
  size_t throttle_next_ = 0;
};

}  // namespace tvm_codl

#endif  // TVM_CODL_COEXEC_GPU_LIST_H_
