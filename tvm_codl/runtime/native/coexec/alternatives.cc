#include "alternatives.h"

#include <algorithm>
#include <iomanip>
#include <sstream>
#include <stdexcept>

#include "json.h"
#include "roaming.h"
#include "run_delay.h"

namespace tvm_codl {

namespace {

std::vector<State> StatesOf(const std::vector<PlannedProgram>& plans) {
  std::vector<State> states;
  for (const auto& plan : plans) states.push_back(plan.state);
  return states;
}

const char* ReasonName(Reason reason) {
  switch (reason) {
    case Reason::kCpuSlower:
      return "the CPU is slower";
    case Reason::kGpuSlower:
      return "the GPU is slower";
    case Reason::kFirstAgain:
      return "the first choice is fast again";
  }
  return "";
}

}  // namespace

Alternatives::Alternatives(const std::vector<PlannedProgram>& plans, const std::shared_ptr<WeightStore>& weights,
                           const std::vector<tvm::runtime::Module>& libraries, int device_id,
                           const std::string& sharing)
    : states_(StatesOf(plans)), choice_(states_) {
  executors_.reserve(plans.size());
  for (const auto& plan : plans) {
    executors_.push_back(std::make_unique<Executor>(plan.program, weights, libraries, device_id, sharing));
    names_.push_back(plan.name);
  }
  SpinUs(executors_.front()->spin_us);
  KeepTime({});
}

// A metronome on the CPU's cores, which are this thread's where none were chosen.
void Alternatives::KeepTime(const std::vector<int>& chosen) {
  if (std::find(states_.begin(), states_.end(), State::kCpuBusy) == states_.end()) return;
  cpu_set_t cores;
  CPU_ZERO(&cores);
  ReturnToCpu();
  if (chosen.empty()) sched_getaffinity(0, sizeof(cores), &cores);
  for (int core : chosen) CPU_SET(static_cast<size_t>(core), &cores);
  metronome_.reset();
  metronome_ = std::make_unique<Metronome>(cores);
}

void Alternatives::SpinUs(int us) {
  std::lock_guard<std::mutex> lock(running_);
  for (size_t i = 0; i < executors_.size(); ++i) {
    // Where another process wants the CPU, a thread that spins uses up its share, and one that sleeps is served first
    // when it wakes.
    executors_[i]->spin_us = states_[i] == State::kCpuBusy ? 0 : us;
    executors_[i]->roams = states_[i] == State::kCpuBusy;
  }
}

Metronome* Alternatives::metronome() const {
  return states_[static_cast<size_t>(ran_)] == State::kCpuBusy ? metronome_.get() : nullptr;
}

// The executor of the next run, which has the inputs that the last one had.
Executor& Alternatives::Next() {
  const int plan = fixed_ == kAdapt ? choice_.plan() : fixed_;
  Executor& next = *executors_[static_cast<size_t>(plan)];
  if (plan != ran_) next.TakeInputs(*executors_[static_cast<size_t>(ran_)]);
  ran_ = plan;
  return next;
}

void Alternatives::RunOnce() {
  Executor& next = Next();
  const Metronome::Scope beats(metronome());
  const int64_t start = HostNow(), delayed = RunDelay();
  next.Run();
  const double ms = static_cast<double>(HostNow() - start) / 1e6;
  if (fixed_ != kAdapt) return;
  const double delay_ms = static_cast<double>(RunDelay() - delayed) / 1e6;
  choice_.Note(ms, ms - static_cast<double>(next.waited_ns()) / 1e6, delay_ms);
}

void Alternatives::SetInput(int index, const DLTensor& data) {
  std::lock_guard<std::mutex> lock(running_);
  executors_[static_cast<size_t>(ran_)]->SetInput(index, data);
}

void Alternatives::GetOutput(int index, DLTensor* data) {
  std::lock_guard<std::mutex> lock(running_);
  executors_[static_cast<size_t>(ran_)]->GetOutput(index, data);
}

void Alternatives::Run() {
  std::lock_guard<std::mutex> lock(running_);
  RunOnce();
}

std::vector<double> Alternatives::Benchmark(int number, int repeat) {
  std::lock_guard<std::mutex> lock(running_);
  std::vector<double> samples;
  for (int r = 0; r < repeat; ++r) {
    const int64_t start = HostNow();
    for (int i = 0; i < number; ++i) RunOnce();
    samples.push_back(static_cast<double>(HostNow() - start) / number / 1e6);
  }
  return samples;
}

std::string Alternatives::Timeline() {
  std::lock_guard<std::mutex> lock(running_);
  Executor& next = Next();
  const Metronome::Scope beats(metronome());
  std::string events = Json(next.program(), next.Timeline());
  const int64_t last = choice_.switches();
  for (int64_t i = std::max(told_, last - static_cast<int64_t>(Choice::kRemembered)); i < last; ++i) {
    const Switch& one = choice_.LastSwitch(last - 1 - i);
    std::ostringstream event;
    event << std::fixed << std::setprecision(2) << "{\"name\":\""
          << Escape(names_[static_cast<size_t>(one.from)] + " -> " + names_[static_cast<size_t>(one.to)]) << ": "
          << ReasonName(one.reason) << " (" << one.from_ms << " -> " << one.to_ms << " ms, " << choice_.runs() - one.run
          << " runs ago)\",\"processor\":\"cpu\",\"kind\":\"switch\",\"region\":\"\","
          << "\"start_us\":0.0,\"end_us\":0.0}";
    // Before the closing bracket of the run's events.
    events.insert(events.size() - 1, (events.size() > 2 ? "," : "") + event.str());
  }
  told_ = last;
  return events;
}

void Alternatives::ChooseCpu(int threads, const std::vector<int>& cores) {
  std::lock_guard<std::mutex> lock(running_);
  for (auto& executor : executors_) executor->ChooseCpu(threads, cores);
  KeepTime(cores);
}

void Alternatives::FlushEvery(int commands) {
  for (auto& executor : executors_) executor->FlushEvery(commands);
}

Executor::HeldBytes Alternatives::held_bytes() const {
  Executor::HeldBytes all{};
  for (const auto& executor : executors_) {
    const Executor::HeldBytes one = executor->held_bytes();
    all = {one.weights, all.tensors + one.tensors, all.scratch + one.scratch};
  }
  return all;
}

void Alternatives::Fix(int plan) {
  std::lock_guard<std::mutex> lock(running_);
  if (plan != kAdapt && (plan < 0 || static_cast<size_t>(plan) >= executors_.size())) {
    throw std::runtime_error("the library has no plan " + std::to_string(plan));
  }
  fixed_ = plan;
  choice_ = Choice(states_);
  told_ = 0;
}

std::string Alternatives::Adaptation() {
  std::lock_guard<std::mutex> lock(running_);
  return Json(choice_);
}

std::string Json(const Choice& choice) {
  std::ostringstream out;
  out << std::setprecision(9) << "{\"plan\":" << choice.plan() << ",\"runs\":" << choice.runs()
      << ",\"trials\":" << choice.trials() << ",\"calm_ms\":" << choice.calm_ms() << ",\"switches\":[";
  const int64_t shown = std::min(choice.switches(), static_cast<int64_t>(Choice::kRemembered));
  for (int64_t back = shown - 1; back >= 0; --back) {
    const Switch& one = choice.LastSwitch(back);
    out << "{\"run\":" << one.run << ",\"from\":" << one.from << ",\"to\":" << one.to << ",\"reason\":\""
        << ReasonName(one.reason) << "\",\"from_ms\":" << one.from_ms << ",\"to_ms\":" << one.to_ms << '}'
        << (back != 0 ? "," : "");
  }
  out << "]}";
  return out.str();
}

}  // namespace tvm_codl
