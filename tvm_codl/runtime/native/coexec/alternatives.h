// A network with one executor for each of its library's plans, of which each run takes the one that Choice says.
#ifndef TVM_CODL_COEXEC_ALTERNATIVES_H_
#define TVM_CODL_COEXEC_ALTERNATIVES_H_

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "adapt.h"
#include "executor.h"
#include "metronome.h"
#include "plans.h"

namespace tvm_codl {

class Alternatives {
 public:
  // As Executor's constructor, for every plan.
  Alternatives(const std::vector<PlannedProgram>& plans, const std::shared_ptr<WeightStore>& weights,
               const std::vector<tvm::runtime::Module>& libraries, int device_id, const std::string& sharing);

  // As Executor's.  Outputs are of the plan that ran last (Ran), in its order of axes.
  void SetInput(int index, const DLTensor& data);
  void GetOutput(int index, DLTensor* data);
  void Run();
  std::vector<double> Benchmark(int number, int repeat);
  // One timed run of the plan that would run next, and the switches since the last timeline, as JSON.  It teaches the
  // choice nothing: a run in which everything is timed is slower.
  std::string Timeline();
  // Of all plans' executors: their weights are the same.
  Executor::HeldBytes held_bytes() const;
  int64_t copied_bytes() const { return executors_[static_cast<size_t>(ran_)]->copied_bytes(); }

  void ChooseCpu(int threads, const std::vector<int>& cores);
  void FlushEvery(int commands);
  // How long a wait spins before it sleeps, where the CPU is not busy.
  void SpinUs(int us);

  // Takes one plan and no other; kAdapt: chooses again, as from the start.
  void Fix(int plan);
  static constexpr int kAdapt = -1;

  // Json of the choice.
  std::string Adaptation();
  // The plan of the last run.
  int ran() const { return ran_; }
  // The first choice.
  Executor& first() { return *executors_.front(); }
  Executors& all() { return executors_; }

 private:
  void RunOnce();
  Executor& Next();
  void KeepTime(const std::vector<int>& chosen);
  // For the plan that runs.
  Metronome* metronome() const;

  Executors executors_;
  std::vector<std::string> names_;
  std::vector<State> states_;
  std::unique_ptr<Metronome> metronome_;  // where a plan is for a busy CPU
  Choice choice_;
  int fixed_ = kAdapt;
  int ran_ = 0;
  int64_t told_ = 0;  // switches that a timeline has shown
  std::mutex running_;
};

// {"plan", "runs", "trials", "calm_ms", "switches": [{"run", "from", "to", "reason", "from_ms", "to_ms"}, ...]}: the
// plan of the next run, and of the last switches the runs before each, the plans' numbers and medians.
std::string Json(const Choice& choice);

}  // namespace tvm_codl

#endif  // TVM_CODL_COEXEC_ALTERNATIVES_H_
