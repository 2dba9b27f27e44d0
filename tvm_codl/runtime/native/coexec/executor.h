// One network, ready to run on both processors.
#ifndef TVM_CODL_COEXEC_EXECUTOR_H_
#define TVM_CODL_COEXEC_EXECUTOR_H_

#include <tvm/runtime/module.h>
#include <tvm/runtime/ndarray.h>

#include <memory>
#include <mutex>
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

class Executor;
using Executors = std::vector<std::unique_ptr<Executor>>;

class Executor {
 public:
  // `sharing` as in ChooseSharing.  The libraries hold the program's functions.
  // Throws std::runtime_error for a weight or function that is missing, or a device that is not there.
  Executor(std::shared_ptr<const Program> program, std::shared_ptr<WeightStore> weights,
           std::vector<tvm::runtime::Module> libraries, int device_id, const std::string& sharing);

  // `data` is a compact tensor of the port's shape and type; throws std::runtime_error where it is not.
  void SetInput(int index, const DLTensor& data);
  void GetOutput(int index, DLTensor* data) const;
  // The inputs of another plan of the same network, as they were last set.
  void TakeInputs(const Executor& other);
  void Run();

  // `repeat` samples of the mean of `number` runs, in milliseconds.
  std::vector<double> Benchmark(int number, int repeat);
  // `repeat` samples of one region alone on its processor, in milliseconds, without waits.  Each sample is the mean
  // over at least `min_ms` of runs with warm caches; or, with min_ms = 0, one run as it is inside a network: its inputs
  // have just been written, and since its last run `network_bytes` of others have gone through the caches (64 MB, at
  // most, which is more than a phone has).
  std::vector<double> TimeRegion(int region, int repeat, double min_ms, int64_t network_bytes);
  // As above with warm caches, while the other processor does `other` again and again, or nothing (kNobody).  The GPU's
  // times are its own clock's, so that they compare with each other and not with TimeRegion's.
  // Throws where both are on one processor, and where `other` is too short to keep the GPU busy.
  std::vector<double> TimeRegionBusy(int region, int other, int repeat, double min_ms);
  // One run in which everything is timed.
  std::vector<Span> Timeline();

  // How runs use the CPU (CpuThreads::Choose), and how often the GPU's queue is flushed (GpuList::flush_every).
  void ChooseCpu(int threads, const std::vector<int>& cores);
  void FlushEvery(int commands);
  // CpuThreads::Describe.
  std::string CpuCores();

  // How long the CPU waited for the GPU in the last run, in ns.
  int64_t waited_ns() const { return waited_ns_; }
  int64_t copied_bytes() const { return copied_bytes_; }
  // Bytes that are held on this device: all the library's weights, which its executors share; this one's tensors; and
  // what its kernels and copies ask for beside these.
  struct HeldBytes {
    int64_t weights, tensors, scratch;
  };
  HeldBytes held_bytes() const {
    return {memory_->WeightBytes(), memory_->TensorBytes(), memory_->ScratchBytes() + cpu_copied_};
  }
  Sharing sharing() const { return memory_->sharing(); }
  const Program& program() const { return *program_; }
  int spin_us = 200;
  // Whether the thread goes elsewhere (LeaveCpu) for the last wait, and computes nothing before it is back.  Cores that
  // were chosen for the CPU are kept.
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
  double BesideCpu(int region, int other, int number);
  double BesideGpu(int region, int other, int number, int64_t one);
  void ChillCaches(int region, int64_t network_bytes);

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
  mutable std::mutex running_;
};

}  // namespace tvm_codl

#endif  // TVM_CODL_COEXEC_EXECUTOR_H_
