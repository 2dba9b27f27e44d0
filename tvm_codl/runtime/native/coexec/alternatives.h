// The module that clients run: one executor for each of the library's plans; each run takes the plan that Choice picks.
//
// All of it works over RPC.  Lists and objects come back as JSON text, which every RPC client can read.
#ifndef TVM_CODL_COEXEC_ALTERNATIVES_H_
#define TVM_CODL_COEXEC_ALTERNATIVES_H_

#include <tvm/runtime/module.h>
#include <tvm/runtime/packed_func.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "adapt.h"
#include "executor.h"
#include "metronome.h"
#include "plans.h"

namespace tvm_codl {

class Alternatives final : public tvm::runtime::ModuleNode {
  using PackedFunc = tvm::runtime::PackedFunc;
  using String = tvm::runtime::String;
  template <typename T>
  using ObjectPtr = tvm::runtime::ObjectPtr<T>;
  using Object = tvm::runtime::Object;
  using TVMArgs = tvm::runtime::TVMArgs;
  using TVMRetValue = tvm::runtime::TVMRetValue;

 public:
  // As Executor's constructor, for every plan.
  Alternatives(const std::vector<PlannedProgram>& plans, const std::shared_ptr<WeightStore>& weights,
               const std::vector<tvm::runtime::Module>& libraries, int device_id, const std::string& sharing);

  int GetPropertyMask() const final { return tvm::runtime::ModulePropertyMask::kRunnable; }
  TVM_MODULE_VTABLE_BEGIN("codl_executor")
  TVM_MODULE_VTABLE_ENTRY("set_input", &Alternatives::SetInput)
  TVM_MODULE_VTABLE_ENTRY("get_output", &Alternatives::GetOutput)
  TVM_MODULE_VTABLE_ENTRY("run", &Alternatives::Run)
  TVM_MODULE_VTABLE_ENTRY("ran", &Alternatives::Ran)
  TVM_MODULE_VTABLE_ENTRY("benchmark", &Alternatives::Benchmark)
  TVM_MODULE_VTABLE_ENTRY("timeline", &Alternatives::Timeline)
  TVM_MODULE_VTABLE_ENTRY("time_region", &Alternatives::TimeRegion)
  TVM_MODULE_VTABLE_ENTRY("time_region_busy", &Alternatives::TimeRegionBusy)
  TVM_MODULE_VTABLE_ENTRY("copied_bytes", &Alternatives::CopiedBytes)
  TVM_MODULE_VTABLE_ENTRY("memory_bytes", &Alternatives::MemoryBytes)
  TVM_MODULE_VTABLE_ENTRY("sharing", &Alternatives::SharingMode)
  TVM_MODULE_VTABLE_ENTRY_PACKED("choose_cpu", &Alternatives::ChooseCpu)
  TVM_MODULE_VTABLE_ENTRY("cpu_cores", &Alternatives::CpuCores)
  TVM_MODULE_VTABLE_ENTRY("flush_every", &Alternatives::FlushEvery)
  TVM_MODULE_VTABLE_ENTRY("spin_us", &Alternatives::SpinUs)
  TVM_MODULE_VTABLE_ENTRY("fix_plan", &Alternatives::FixPlan)
  TVM_MODULE_VTABLE_ENTRY("adaptation", &Alternatives::Adaptation)
  TVM_MODULE_VTABLE_END()

 private:
  static constexpr int kAdapt = -1;

  void SetInput(int index, DLTensor* data);
  // An output of the plan that ran last (Ran), in that plan's order of axes.
  void GetOutput(int index, DLTensor* data);
  void Run();
  int Ran() const { return ran_; }
  // {"ms", "waited_ms", "work_ms"}: `repeat` samples of the mean of `number` runs; how long the threads of this process
  // waited for a core during each, by run; and what the known work took on each core, before or after, whichever is
  // shorter: a core that is slow in both is slow.
  std::string Benchmark(int number, int repeat);
  // One timed run of the next plan, and the switches since the last timeline.  The choice ignores it, since a run with
  // timing is slower.
  std::string Timeline();
  // As Executor's, for the first plan.
  std::string TimeRegion(int region, int repeat, double min_ms, int64_t network_bytes);
  std::string TimeRegionBusy(int region, int other, int repeat, double min_ms);
  std::string SharingMode() const { return SharingName(executors_.front()->sharing()); }
  std::string CpuCores();
  int64_t CopiedBytes() const { return executors_[static_cast<size_t>(ran_)]->copied_bytes(); }
  // Of all plans' executors; they share their weights.
  std::string MemoryBytes() const;
  // (threads, core1, core2, ...): CpuThreads::Choose.
  void ChooseCpu(TVMArgs args, TVMRetValue* rv);
  // GpuList::flush_every.
  void FlushEvery(int commands);
  // How long a wait spins before it sleeps; plans for a busy CPU never spin.
  void SpinUs(int us);
  // Runs only this plan; kAdapt: chooses again, as from the start.
  void FixPlan(int plan);
  std::string Adaptation();

  void RunOnce();
  Executor& Next();
  // Those of each CPU thread, and each of those on which a CPU plays the GPU.
  std::vector<std::vector<int>> AllCores() const;
  // Makes a metronome for these cores, or for this thread's where none are given.
  void MakeMetronome(const std::vector<int>& cores);
  // The metronome, if the plan that runs is for a busy CPU.
  Metronome* metronome() const;

  std::vector<std::unique_ptr<Executor>> executors_;
  std::vector<std::string> names_;
  std::vector<State> states_;
  std::unique_ptr<Metronome> metronome_;  // where a plan is for a busy CPU
  Choice choice_;
  int fixed_ = kAdapt;
  int ran_ = 0;
  int64_t shown_switches_ = 0;  // by timelines
  std::mutex running_;
};

// {"plan", "runs", "trials", "calm_ms", "switches": [{"run", "from", "to", "reason", "from_ms", "to_ms"}, ...]}: the
// next run's plan; and for the last switches the number of earlier runs, the plans, and their medians.
std::string ToJson(const Choice& choice);

}  // namespace tvm_codl

#endif  // TVM_CODL_COEXEC_ALTERNATIVES_H_
