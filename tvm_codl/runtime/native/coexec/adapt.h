// Chooses which of a library's plans runs next, by the times of the runs so far.
//
// Plan 0 is the first choice.  Its calm time is the smallest median of kWindow of its runs in a row.  The rule:
//   - Doubt.  The plan that runs is doubted when its median over the last kWindow runs is kDepart times what it was
//   when
//     the plan was chosen; away from plan 0 also when the load for which it was chosen is as much lighter.  Waits for a
//     core (kRobbed of a run) tell more than times, which then vary more (kSlow instead of kDepart): plan 0 is doubted
//     after kSure such runs, a plan for a busy CPU after kGone runs in a row without (kFree).
//   - Trials.  Each other plan runs kTrial times; the first run, with cold caches, is dropped, and the median of the
//   rest
//     counts.  First come plan 0 and the plans made for the observed state: a busy CPU if the thread waited for a core
//     or if most of the extra time is the CPU's own work, else a slow GPU.  If none of these gains, the rest follow.
//     The best is kept if it takes less than kGain of the doubted plan, which is tried once more for that.  If waits
//     for a core, or their end, are the cause, the rest and the repetition are skipped, and any gain is enough.
//   - Return.  Away from plan 0, it is tried again after `distance` runs (kFar while the thread waits for cores), and
//     taken if it gains or takes at most kCalm of its calm time.  Each trial without a change, and each stay with plan
//     0 of less than kSettled runs, doubles the distance, from kNear to kFar; kSettled runs of plan 0 without doubt
//     reset it.  Plan 0 is doubted again after `distance` runs at the earliest, and then while it takes kSlow times its
//     calm time.
// So noise changes nothing unless it slows most of a window and makes another plan faster twice, and a trial in vain
// costs a dozen runs in kFar.  A Choice allocates nothing after its construction.
#ifndef TVM_CODL_COEXEC_ADAPT_H_
#define TVM_CODL_COEXEC_ADAPT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tvm_codl {

// What a plan was made for.
enum class State : uint8_t { kCalm, kCpuBusy, kGpuThrottled };

// Why the plan changed: the CPU slower, the GPU slower, or the first choice as fast as before.
enum class Reason : uint8_t { kCpuSlower, kGpuSlower, kFirstAgain };

struct Switch {
  int64_t run = 0;  // runs before it
  int from = 0;
  int to = 0;
  Reason reason = Reason::kFirstAgain;
  double from_ms = 0.0;  // median of the plan that was left, and of the one that was taken
  double to_ms = 0.0;
};

class Choice {
 public:
  static constexpr size_t kWindow = 5;
  static constexpr size_t kTrial = 4;
  static constexpr size_t kSure = 3;
  static constexpr int64_t kGone = 6;
  static constexpr double kDepart = 1.25;
  static constexpr double kSlow = 1.5;
  static constexpr double kGain = 0.9;
  static constexpr double kCalm = 1.1;
  static constexpr double kRobbed = 0.05;
  static constexpr double kFree = 0.02;
  static constexpr int64_t kNear = 16;
  static constexpr int64_t kFar = 128;
  static constexpr int64_t kSettled = 64;
  static constexpr size_t kRemembered = 64;

  // One entry a plan, the first choice first; at least one.
  explicit Choice(std::vector<State> plans);

  // The plan of the next run.
  int plan() const { return running_; }
  // A run of plan() took `ms`: the CPU worked for `cpu_ms` and waited for the GPU the rest of the time.  For `delay_ms`
  // its thread waited for a core; 0 if unknown.
  void Note(double ms, double cpu_ms, double delay_ms = 0.0);

  int64_t runs() const { return runs_; }
  int64_t switches() const { return switches_; }
  int64_t trials() const { return trials_; }
  // The last kRemembered switches at most, `back` = 0 the last one.
  const Switch& LastSwitch(int64_t back) const;
  // The median of plan 0's calm runs; 0 before the first kWindow.
  double calm_ms() const { return calm_.ms; }

 private:
  struct Times {
    double ms = 0.0;
    double cpu_ms = 0.0;
    double delay_ms = 0.0;
    bool robbed() const { return delay_ms > kRobbed * ms; }
    bool free() const { return delay_ms < kFree * ms; }
    double wait_ms() const { return ms > cpu_ms ? ms - cpu_ms : 0.0; }
  };
  // The last runs of one plan in a row.
  struct Window {
    std::array<Times, kWindow> runs{};
    size_t count = 0;
    void Add(const Times& times) { runs[count++ % kWindow] = times; }
    // Medians of the last `n`, or of fewer if there are fewer.
    Times Median(size_t n) const;
    // There are `n`, and in each of the last `n` the thread waited for a core.
    bool Robbed(size_t n) const;
  };

  bool Departed() const;
  void StartTrials(bool only_first, bool cause_known, const Times& now);
  void QueueTrials(bool fitting);
  void NextTrial();
  // Of those tried, the one to keep.
  int Best() const;
  void Decide();

  std::vector<State> states_;
  std::vector<Times> tried_;  // of each plan in this round of trials; 0: not tried
  std::vector<int> queue_;    // plans still to be tried
  size_t queued_ = 0, next_ = 0;
  int kept_ = 0;     // the plan in use outside trials
  int running_ = 0;  // kept_, or the one that is tried
  bool trying_ = false, second_round_ = false, again_ = false, only_first_ = false, cpu_slower_ = false;
  bool cause_known_ = false;   // so the doubted plan is not tried again
  bool robbed_since_ = false;  // a run since the last trial was
  size_t trial_runs_ = 0;
  Window window_;
  Window trial_;           // the counted runs of the plan that is tried
  Times calm_;             // plan 0
  Times level_;            // of the kept plan when its window first was full; 0: not full yet
  int64_t free_runs_ = 0;  // in a row without waits for a core
  int64_t runs_ = 0, since_kept_ = 0, since_trial_ = 0, distance_ = kNear;
  int64_t switches_ = 0, trials_ = 0;
  std::array<Switch, kRemembered> remembered_{};
};

}  // namespace tvm_codl

#endif  // TVM_CODL_COEXEC_ADAPT_H_
