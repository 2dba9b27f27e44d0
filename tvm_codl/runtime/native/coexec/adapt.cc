#include "adapt.h"

#include <algorithm>
#include <stdexcept>

namespace tvm_codl {

Choice::Times Choice::Window::Median(size_t n) const {
  n = std::min({n, count, kWindow});
  if (n == 0) return {};
  const auto median = [&](double Times::* time) {
    std::array<double, kWindow> values{};
    for (size_t i = 0; i < n; ++i) values[i] = runs[(count - 1 - i) % kWindow].*time;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(n / 2);
    std::nth_element(values.begin(), middle, values.begin() + static_cast<std::ptrdiff_t>(n));
    return *middle;
  };
  return {median(&Times::ms), median(&Times::cpu_ms), median(&Times::delay_ms)};
}

bool Choice::Window::Robbed(size_t n) const {
  if (count < n) return false;
  for (size_t i = 0; i < n; ++i) {
    if (!runs[(count - 1 - i) % kWindow].robbed()) return false;
  }
  return true;
}

Choice::Choice(std::vector<State> plans) : states_(std::move(plans)) {
  if (states_.empty()) throw std::runtime_error("there is no plan to choose");
  tried_.resize(states_.size());
  queue_.resize(states_.size());
}

const Switch& Choice::LastSwitch(int64_t back) const {
  return remembered_[static_cast<size_t>(switches_ - 1 - back) % kRemembered];
}

void Choice::Note(double ms, double cpu_ms, double delay_ms) {
  ++runs_;
  if (states_.size() == 1) return;
  const Times run{ms, cpu_ms, delay_ms};
  if (trying_) {
    if (++trial_runs_ > 1) trial_.Add(run);
    if (trial_runs_ == kTrial) {
      tried_[static_cast<size_t>(running_)] = trial_.Median(kTrial);
      NextTrial();
    }
    return;
  }
  ++since_trial_;
  ++since_kept_;
  if (since_kept_ == 1) return;  // the first run of a plan finds cold caches
  window_.Add(run);
  robbed_since_ = robbed_since_ || run.robbed();
  free_runs_ = run.free() ? free_runs_ + 1 : 0;
  const bool due = since_trial_ >= distance_ || trials_ == 0;
  // Trials that noise caused in vain do not count against a known cause.
  if (kept_ == 0 && calm_.ms > 0.0 && (due || !cause_known_) && window_.Robbed(kSure)) {
    const Times robbed = window_.Median(kSure);
    if (robbed.ms > calm_.ms * kDepart) return StartTrials(false, true, robbed);
  }
  const bool for_busy = kept_ != 0 && states_[static_cast<size_t>(kept_)] == State::kCpuBusy;
  if (for_busy && robbed_since_ && free_runs_ >= kGone) return StartTrials(true, true, window_.Median(kWindow));
  if (window_.count < kWindow) return;
  const Times recent = window_.Median(kWindow);
  if (kept_ == 0) {
    if (calm_.ms == 0.0 || recent.ms < calm_.ms) calm_ = recent;
    if (since_kept_ == kSettled && !Departed()) distance_ = kNear;
  }
  // The level only rises after trials that found nothing better.
  if (level_.ms == 0.0) level_ = kept_ == 0 && calm_.ms > 0.0 ? calm_ : recent;
  // A trial in vain may have been bad luck: while it is slow, try again now and then.
  const bool slow = kept_ != 0 || recent.ms > calm_.ms * kSlow;
  const bool again = slow && since_trial_ >= (for_busy && window_.Robbed(kSure) ? kFar : distance_);
  if (kept_ == 0 && recent.ms < level_.ms) level_ = recent;
  if (Departed() && (kept_ != 0 || due)) {
    StartTrials(kept_ != 0 && recent.ms <= level_.ms * kDepart, false, recent);
  } else if (again) {
    StartTrials(kept_ != 0, false, recent);
  }
}

// Slower than before; or, away from the first choice, one processor's load is lighter again.
bool Choice::Departed() const {
  const Times recent = window_.Median(kWindow);
  // Beside another process times vary more.
  if (recent.ms > level_.ms * (kept_ != 0 && recent.robbed() ? kSlow : kDepart)) return true;
  if (kept_ == 0 || recent.robbed()) return false;
  return states_[static_cast<size_t>(kept_)] == State::kCpuBusy ? recent.cpu_ms * kDepart < level_.cpu_ms
                                                                : recent.wait_ms() * kDepart < level_.wait_ms();
}

// `now`: the doubted runs of the kept plan; `cause_known`: the thread's waits for a core are the cause.
void Choice::StartTrials(bool only_first, bool cause_known, const Times& now) {
  std::fill(tried_.begin(), tried_.end(), Times{});
  tried_[static_cast<size_t>(kept_)] = now;
  ++trials_;
  trying_ = true;
  second_round_ = again_ = false;
  only_first_ = only_first;
  cause_known_ = cause_known;
  // Away from plan 0 only waits for a core tell which processor is slower; otherwise the earlier finding stands.
  if (now.robbed()) {
    cpu_slower_ = true;
  } else if (kept_ == 0) {
    cpu_slower_ = now.cpu_ms - calm_.cpu_ms > 0.5 * (now.ms - calm_.ms);
  }
  // After a trial for the end of the waits, the next one needs a new cause; any other trial may hide that end.
  if (cause_known) robbed_since_ = false;
  QueueTrials(true);
  NextTrial();
}

void Choice::QueueTrials(bool fitting) {
  queued_ = next_ = 0;
  const State wanted = cpu_slower_ ? State::kCpuBusy : State::kGpuThrottled;
  for (size_t i = 0; i < states_.size(); ++i) {
    if (static_cast<int>(i) == kept_ || (only_first_ && i != 0)) continue;
    if ((i == 0 || states_[i] == wanted) == fitting) queue_[queued_++] = static_cast<int>(i);
  }
}

void Choice::NextTrial() {
  if (next_ == queued_ && !second_round_ && !only_first_) {
    second_round_ = true;
    if (Best() == kept_ && !cause_known_) QueueTrials(false);
  }
  if (next_ == queued_ && !again_ && !cause_known_ && Best() != kept_) {
    // The kept plan may have been slow by momentary noise: try it once more.
    again_ = true;
    queued_ = next_ = 0;
    queue_[queued_++] = kept_;
  }
  if (next_ == queued_) return Decide();
  running_ = queue_[next_++];
  trial_runs_ = 0;
  trial_ = {};
}

int Choice::Best() const {
  const Times now = tried_[static_cast<size_t>(kept_)];
  int best = kept_;
  double limit = (cause_known_ ? 1.0 : kGain) * now.ms;
  for (size_t i = 0; i < tried_.size(); ++i) {
    if (tried_[i].ms > 0.0 && tried_[i].ms < limit) {
      best = static_cast<int>(i);
      limit = tried_[i].ms;
    }
  }
  const double first = tried_[0].ms;
  const bool calm = kept_ != 0 && first > 0.0 && first <= kCalm * calm_.ms && first <= now.ms;
  return best == kept_ && calm ? 0 : best;
}

void Choice::Decide() {
  trying_ = false;
  const Times now = tried_[static_cast<size_t>(kept_)];
  const int best = Best();
  // A short return to plan 0 counts as a trial in vain, too.
  const bool vain = best == kept_ || (kept_ == 0 && switches_ > 0 && since_kept_ < kSettled);
  if (vain) distance_ = std::min(2 * distance_, kFar);
  if (best == kept_) {
    // Nothing is better, so this is how fast it is now.
    level_ = now;
  } else {
    const Reason reason = best == 0 ? Reason::kFirstAgain : cpu_slower_ ? Reason::kCpuSlower : Reason::kGpuSlower;
    remembered_[static_cast<size_t>(switches_++) % kRemembered] = {
        runs_, kept_, best, reason, now.ms, tried_[static_cast<size_t>(best)].ms};
    level_ = {};
    robbed_since_ = cause_known_;
    free_runs_ = 0;
  }
  kept_ = running_ = best;
  window_ = {};
  since_kept_ = since_trial_ = 0;
}

}  // namespace tvm_codl
