// One plan of a network, ready to run on both processors.  Not thread-safe.
#ifndef TVM_CODL_COEXEC_EXECUTOR_H_
#define TVM_CODL_COEXEC_EXECUTOR_H_

#include <tvm/runtime/module.h>
#include <tvm/runtime/ndarray.h>

#include <memory>
#include <string>
#include <vector>

#include "cpu_list.h"
#include "cpu_threads.h"
#include "gpu_list.h"
#include "memory.h"
#include "program.h"
#include "timeline.h"
#include "weights.h"

namespace tvm_codl {

class Executor {
 public:
  // `sharing` as in ChooseSharing.  The libraries hold the program's functions.
  // Throws std::runtime_error for a weight or function that is missing, or a device that is not there.
  Executor(std::shared_ptr<const Program> program, std::shared_ptr<WeightStore> weights,
           std::vector<tvm::runtime::Module> libraries, int device_id, const std::string& sharing);

  // `data` is a compact tensor of the port's shape and type; throws std::runtime_error where it is not.
  void SetInput(int index, const DLTensor& data);
  void GetOutput(int index, DLTensor* data) const;
  // Copies the inputs last set for another plan of the same network.
  void TakeInputs(const Executor& other);
  void Run();

  // `repeat` samples of one region alone on its processor, in milliseconds, without waits.  Each sample is the mean
  // over at least `min_ms` of runs with warm caches.  With min_ms = 0 it is one run under a network's conditions: the
  // inputs were just written, and since the last run `network_bytes` of other data have passed through the caches (at
  // most 64 MB, more than any phone's cache).  On a GPU with memory of its own it is one of many such runs, and no less
  // than one of many with warm caches.
  std::vector<double> TimeRegion(int region, int repeat, double min_ms, int64_t network_bytes);
  // As above with warm caches, while the other processor repeats `other`, or does nothing (kNobody).  GPU times come
  // from the GPU's own clock: compare them with each other, not with TimeRegion's.
  // Throws if both are on one processor, and if `other` is too short to keep the GPU busy.
  std::vector<double> TimeRegionBusy(int region, int other, int repeat, double min_ms);
  // One run in which everything is timed.
  std::vector<Span> Timeline();

  void ChooseCpu(int threads, const std::vector<int>& cores) { cpu_threads_.Choose(threads, cores); }
  // GpuList::flush_every.
  void FlushEvery(int commands);
  std::vector<std::vector<int>> CpuCores() const { return cpu_threads_.Cores(); }
  bool cpu_chosen() const { return cpu_threads_.pinned(); }

  // How long the CPU waited for the GPU in the last run, in ns.
  int64_t waited_ns() const { return waited_ns_; }
  int64_t copied_bytes() const { return copied_bytes_; }
  // The workspace includes that of the CPU's calls.
  Memory::HeldBytes held_bytes() const {
    Memory::HeldBytes held = memory_->held_bytes();
    held.scratch += cpu_copied_;
    return held;
  }
  Sharing sharing() const { return memory_->sharing(); }
  const Program& program() const { return *program_; }
  int spin_us = 200;
  // Whether the thread leaves the CPU's cores (LeaveCpu) for the last wait.  Never if the CPU's cores were chosen.
  bool roams = false;
  static constexpr int kNobody = -1;

 private:
  void RunOnce(std::vector<Span>* spans);
  void RunCpuStep(size_t index);
  bool Roams() const { return roams && gpu_ != nullptr && !cpu_threads_.pinned(); }
  void Feed(size_t until, std::vector<Span>* spans);
  bool OnGpu(int region) const;
  void CheckRegion(int region) const;
  void RunOnCpu(int region);
  int64_t RunRegion(int region, int number);
  // How many runs of a region take `min_ms`, at most kMostRuns; `run_ns`: what one takes.
  int CountRuns(int region, double min_ms, int64_t* run_ns);
  // `repeat` samples, in ms.  One during which threads waited for a core is taken again.
  template <typename Take>
  std::vector<double> Sample(int repeat, const Take& take_ns);
  double TimeGpuBusy(int region, int other, int number);
  double TimeCpuBusy(int region, int other, int number, int64_t run_ns);
  std::vector<View> InputsOf(int region) const;
  void CoolCaches(const std::vector<View>& inputs, int64_t network_bytes);

  std::shared_ptr<const Program> program_;
  std::vector<tvm::runtime::Module> libraries_;
  std::unique_ptr<Memory> memory_;
  std::vector<std::unique_ptr<PreparedCall>> calls_;  // by CPU step; null for steps that are no calls
  std::vector<std::vector<size_t>> steps_of_;         // by region: its calls and copies in its processor's list
  std::unique_ptr<GpuList> gpu_;
  CpuThreads cpu_threads_;
  int64_t waited_ns_ = 0;
  int64_t cpu_copied_ = 0;
  int64_t copied_bytes_ = 0;
  std::vector<uint8_t> cold_;  // larger than any cache of a phone
};

}  // namespace tvm_codl

#endif  // TVM_CODL_COEXEC_EXECUTOR_H_
