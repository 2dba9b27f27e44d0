// Which of a library's plans runs next, by the times of the runs so far.
//
// Plan 0 is the first choice.  Its calm time is the smallest median of kWindow of its runs in a row.  The rule:
//   - The plan that runs is doubted when its median over the last kWindow runs is kDepart times what it was when it was
//     chosen; away from plan 0 also when the side for which it was chosen has become as much lighter.  That the thread
//     had to queue up for a core (kRobbed of a run) says more than times, which then vary more (kSlow instead of
//     kDepart): plan 0 is doubted after kSure such runs, and a plan for a busy CPU after kGone runs in a row in which
//     it had not (kFree).
//   - Doubt tries the other plans: kTrial runs each, of which the first, which finds cold caches, does not count; the
//     others' median does.  Those made for what was seen come first (the thread had to queue up, or most of what the
//     run takes longer is the CPU's own work: a busy CPU; else a slow GPU) with plan 0, and if none of these gains, the
//     rest.  The best is kept if it takes less than kGain of what the doubted plan takes, which is tried once more for
//     that.  Where queueing up, or its end, has said why, there is neither the rest nor once more,
//     and what gains at all is kept.
//   - Away from plan 0, it is tried again after `distance` runs (kFar, while the thread has to queue up), and taken if
//     it gains or takes at most kCalm of its calm time.  Every trial without a change, and every stay with plan 0 of
//     less than kSettled runs, doubles the distance, from kNear to kFar; kSettled runs of plan 0 without doubt make it
//     kNear again.  Plan 0 is doubted again after `distance` runs at the soonest, and then while it takes kSlow times
//     its calm time.
// So noise moves nothing unless it makes most of a window slow and another plan faster twice, and a trial in vain costs
// a dozen runs in kFar.  Nothing is allocated once a Choice is made.
#ifndef TVM_CODL_COEXEC_ADAPT_H_
#define TVM_CODL_COEXEC_ADAPT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tvm_codl {

// What a plan was made for.
enum class State : uint8_t { kCalm, kCpuBusy, kGpuThrottled };

// Why another plan was taken: the CPU's side slower, the GPU's side slower, or the first choice at its old time again.
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
  // A run of plan() took `ms`, of which the CPU worked `cpu_ms` and waited for the GPU the rest.  For `delay_ms` of it
  // its thread could have run and had no core; 0 where that is not known.
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
    // Medians of the last `n` that are there.
    Times Median(size_t n) const;
    // The last `n` are there and in each the thread had to queue up.
    bool Robbed(size_t n) const;
  };

  bool Departed() const;
  void StartTrials(bool only_first, bool known, const Times& now);
  void QueueTrials(bool fitting);
  void NextTrial();
  // Of those tried, the one to keep.
  int Best() const;
  void Decide();
  void Keep(int plan);
  void Widen();

  std::vector<State> states_;
  std::vector<Times> tried_;  // of each plan in this round of trials; 0: not tried
  std::vector<int> queue_;    // plans still to be tried
  size_t queued_ = 0, next_ = 0;
  int kept_ = 0;     // the plan that is not just tried
  int running_ = 0;  // kept_, or the one that is tried
  bool trying_ = false, second_round_ = false, again_ = false, only_first_ = false, cpu_slower_ = false;
  bool known_ = false;         // what changed is, so the doubted plan is not tried once more
  bool robbed_since_ = false;  // a run since the last trial was
  size_t trial_runs_ = 0;
  Window window_;
  Window trial_;           // the counted runs of the plan that is tried
  Times calm_;             // plan 0
  Times level_;            // of the kept plan, as it was when its window first was full; 0: not full yet
  int64_t free_runs_ = 0;  // in a row in which the thread had not to queue up
  int64_t runs_ = 0, since_kept_ = 0, since_trial_ = 0, distance_ = kNear;
  int64_t switches_ = 0, trials_ = 0;
  std::array<Switch, kRemembered> remembered_{};
};

}  // namespace tvm_codl

#endif  // TVM_CODL_COEXEC_ADAPT_H_
