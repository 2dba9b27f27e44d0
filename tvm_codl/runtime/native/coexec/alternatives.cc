#include "alternatives.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iomanip>
#include <sstream>
#include <stdexcept>

#include "../opencl/affinity.h"
#include "json.h"
#include "known_work.h"
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
  static constexpr const char* kNames[] = {"the CPU is slower", "the GPU is slower", "the first choice is fast again"};
  return kNames[static_cast<size_t>(reason)];
}

// Samples in milliseconds, as a JSON list, to the picosecond.  With as many digits for all, the text's length does
// not vary, nor what it allocates.
std::string SamplesJson(const std::vector<double>& samples) {
  std::ostringstream out;
  out << '[' << std::fixed << std::setprecision(9);
  for (size_t i = 0; i < samples.size(); ++i) out << (i != 0 ? "," : "") << samples[i];
  out << ']';
  return out.str();
}

picojson::value EventJson(const std::string& name, const char* processor, const char* kind, const std::string& region,
                          double start_us, double end_us) {
  return Json(JsonObject{{"name", Json(name)},
                         {"processor", Json(processor)},
                         {"kind", Json(kind)},
                         {"region", Json(region)},
                         {"start_us", Json(start_us)},
                         {"end_us", Json(end_us)}});
}

// Times in microseconds since the first event's start.
JsonArray Events(const Program& program, const std::vector<Span>& spans) {
  // Readers know feeding and signalling as kinds of sharing; the name tells them apart.
  static constexpr const char* kNames[] = {"kernel", "wait", "share", "feed", "signal"};
  static constexpr const char* kKinds[] = {"kernel", "wait", "share", "share", "share"};
  int64_t origin = INT64_MAX;
  for (const Span& span : spans) origin = std::min(origin, span.start);
  JsonArray events;
  for (const Span& span : spans) {
    const auto& steps = span.gpu ? program.gpu : program.cpu;
    const auto step = static_cast<size_t>(span.step);
    const auto kind = static_cast<size_t>(span.kind);
    std::string name = step < steps.size() ? steps[step].function : "";
    if (name.empty()) name = kNames[kind];
    const std::string region = span.region >= 0 ? program.regions[static_cast<size_t>(span.region)].name : "";
    events.push_back(EventJson(name, span.gpu ? "gpu" : "cpu", kKinds[kind], region,
                               static_cast<double>(span.start - origin) / 1e3,
                               static_cast<double>(span.end - origin) / 1e3));
  }
  return events;
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
  MakeMetronome({});
}

void Alternatives::MakeMetronome(const std::vector<int>& cores) {
  if (std::find(states_.begin(), states_.end(), State::kCpuBusy) == states_.end()) return;
  ReturnToCpu();
  metronome_.reset();
  metronome_ = std::make_unique<Metronome>(ToCores(cores.empty() ? AllowedCores() : ToCpuSet(cores)));
}

void Alternatives::SpinUs(int us) {
  std::lock_guard<std::mutex> lock(running_);
  for (size_t i = 0; i < executors_.size(); ++i) {
    // Beside another process, a thread that spins uses up its share of the CPU; one that sleeps is served first when it
    // wakes.
    executors_[i]->spin_us = states_[i] == State::kCpuBusy ? 0 : us;
    executors_[i]->roams = states_[i] == State::kCpuBusy;
  }
}

Metronome* Alternatives::metronome() const {
  return states_[static_cast<size_t>(ran_)] == State::kCpuBusy ? metronome_.get() : nullptr;
}

// The executor of the next run, with the inputs of the last one.
Executor& Alternatives::Next() {
  const int plan = fixed_ == kAdapt ? choice_.plan() : fixed_;
  Executor& next = *executors_[static_cast<size_t>(plan)];
  if (plan != ran_) next.TakeInputs(*executors_[static_cast<size_t>(ran_)]);
  ran_ = plan;
  return next;
}

void Alternatives::RunOnce() {
  Executor& next = Next();
  const Metronome::Scope ticking(metronome());
  const int64_t start = HostNow(), delayed = RunDelay();
  next.Run();
  const double ms = static_cast<double>(HostNow() - start) / 1e6;
  if (fixed_ != kAdapt) return;
  const double delay_ms = static_cast<double>(RunDelay() - delayed) / 1e6;
  choice_.Note(ms, ms - static_cast<double>(next.waited_ns()) / 1e6, delay_ms);
}

void Alternatives::SetInput(int index, DLTensor* data) {
  std::lock_guard<std::mutex> lock(running_);
  executors_[static_cast<size_t>(ran_)]->SetInput(index, *data);
}

void Alternatives::GetOutput(int index, DLTensor* data) {
  std::lock_guard<std::mutex> lock(running_);
  executors_[static_cast<size_t>(ran_)]->GetOutput(index, data);
}

void Alternatives::Run() {
  std::lock_guard<std::mutex> lock(running_);
  RunOnce();
}

std::string Alternatives::Benchmark(int number, int repeat) {
  std::lock_guard<std::mutex> lock(running_);
  std::vector<double> samples, waits;
  const RunDelays delays;
  std::vector<double> work = KnownWork(AllCores());
  for (int r = 0; r < repeat; ++r) {
    const int64_t waited = delays.Sum(), start = HostNow();
    for (int i = 0; i < number; ++i) RunOnce();
    samples.push_back(static_cast<double>(HostNow() - start) / number / 1e6);
    waits.push_back(static_cast<double>(delays.Sum() - waited) / number / 1e6);
  }
  const std::vector<double> after = KnownWork(AllCores());
  for (size_t i = 0; i < std::min(work.size(), after.size()); ++i) work[i] = std::min(work[i], after[i]);
  return "{\"ms\":" + SamplesJson(samples) + ",\"waited_ms\":" + SamplesJson(waits) +
         ",\"work_ms\":" + SamplesJson(work) + "}";
}

std::vector<std::vector<int>> Alternatives::AllCores() const {
  std::vector<std::vector<int>> cores;
  for (std::vector<int>& own : executors_.front()->CpuCores()) {
    // A thread that may run anywhere is now on a fast core and now on a slow one.
    if (own.size() == 1 || executors_.front()->cpu_chosen()) cores.push_back(std::move(own));
  }
  for (const int core : ToCores(ParseCores(std::getenv("CODL_GPU_CORES")))) cores.push_back({core});
  return cores;
}

std::string Alternatives::Timeline() {
  std::lock_guard<std::mutex> lock(running_);
  Executor& next = Next();
  const Metronome::Scope ticking(metronome());
  JsonArray events = Events(next.program(), next.Timeline());
  const int64_t last = choice_.switches();
  for (int64_t i = std::max(shown_switches_, last - static_cast<int64_t>(Choice::kRemembered)); i < last; ++i) {
    const Switch& change = choice_.LastSwitch(last - 1 - i);
    char times[96];
    std::snprintf(times, sizeof(times), " (%.2f -> %.2f ms, %lld runs ago)", change.from_ms, change.to_ms,
                  static_cast<long long>(choice_.runs() - change.run));
    const std::string name = names_[static_cast<size_t>(change.from)] + " -> " +
                             names_[static_cast<size_t>(change.to)] + ": " + ReasonName(change.reason) + times;
    events.push_back(EventJson(name, "cpu", "switch", "", 0, 0));
  }
  shown_switches_ = last;
  return Json(events).serialize();
}

std::string Alternatives::TimeRegion(int region, int repeat, double min_ms, int64_t network_bytes) {
  std::lock_guard<std::mutex> lock(running_);
  return SamplesJson(executors_.front()->TimeRegion(region, repeat, min_ms, network_bytes));
}

std::string Alternatives::TimeRegionBusy(int region, int other, int repeat, double min_ms) {
  std::lock_guard<std::mutex> lock(running_);
  return SamplesJson(executors_.front()->TimeRegionBusy(region, other, repeat, min_ms));
}

void Alternatives::ChooseCpu(TVMArgs args, TVMRetValue*) {
  std::lock_guard<std::mutex> lock(running_);
  std::vector<int> cores;
  for (int i = 1; i < args.size(); ++i) cores.push_back(args[i]);
  for (auto& executor : executors_) executor->ChooseCpu(args[0], cores);
  MakeMetronome(cores);
}

std::string Alternatives::CpuCores() {
  std::lock_guard<std::mutex> lock(running_);
  return Json(executors_.front()->CpuCores()).serialize();
}

void Alternatives::FlushEvery(int commands) {
  std::lock_guard<std::mutex> lock(running_);
  for (auto& executor : executors_) executor->FlushEvery(commands);
}

std::string Alternatives::MemoryBytes() const {
  Memory::HeldBytes all{};
  for (const auto& executor : executors_) {
    const Memory::HeldBytes held = executor->held_bytes();
    all = {held.weights, all.tensors + held.tensors, all.scratch + held.scratch};
  }
  return Json(
             JsonObject{{"weights", Json(all.weights)}, {"tensors", Json(all.tensors)}, {"scratch", Json(all.scratch)}})
      .serialize();
}

void Alternatives::FixPlan(int plan) {
  std::lock_guard<std::mutex> lock(running_);
  if (plan != kAdapt && (plan < 0 || static_cast<size_t>(plan) >= executors_.size())) {
    throw std::runtime_error("the library has no plan " + std::to_string(plan));
  }
  fixed_ = plan;
  choice_ = Choice(states_);
  shown_switches_ = 0;
}

std::string Alternatives::Adaptation() {
  std::lock_guard<std::mutex> lock(running_);
  return ToJson(choice_);
}

std::string ToJson(const Choice& choice) {
  JsonArray switches;
  for (int64_t back = std::min<int64_t>(choice.switches(), Choice::kRemembered) - 1; back >= 0; --back) {
    const Switch& change = choice.LastSwitch(back);
    switches.push_back(Json(JsonObject{{"run", Json(change.run)},
                                       {"from", Json(change.from)},
                                       {"to", Json(change.to)},
                                       {"reason", Json(ReasonName(change.reason))},
                                       {"from_ms", Json(change.from_ms)},
                                       {"to_ms", Json(change.to_ms)}}));
  }
  return Json(JsonObject{{"plan", Json(choice.plan())},
                         {"runs", Json(choice.runs())},
                         {"trials", Json(choice.trials())},
                         {"calm_ms", Json(choice.calm_ms())},
                         {"switches", Json(switches)}})
      .serialize();
}

}  // namespace tvm_codl
