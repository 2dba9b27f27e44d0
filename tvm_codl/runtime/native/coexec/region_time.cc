// Measures single regions: alone, and while the other processor works on another one.
#include <algorithm>
#include <set>

#include "executor.h"
#include "run_delay.h"

namespace tvm_codl {

namespace {

constexpr size_t kColdBytes = size_t{64} << 20;
constexpr size_t kCacheLine = 64;
// How long runs follow one another where each is not to be the first, by the time of a lone run.
constexpr double kFollowingMs = 4.0;
// A sample is the mean of at most so many runs.
constexpr int64_t kMostRuns = 64;
// Twice as many runs take at least so many times as long, unless something disturbed the first ones.
constexpr double kLeastRatio = 1.25;
// How often a sample is tried that must not be disturbed, or in which the GPU must outlast the CPU.
constexpr int kAttempts = 16;
// Threads wait so long for a core of their own to wake up, and this share of a sample for the kernel's own work.
constexpr int64_t kWakeNs = 100'000;
constexpr double kKernelShare = 0.01;

}  // namespace

bool Executor::OnGpu(int region) const {
  return program_->regions[static_cast<size_t>(region)].processor == Processor::kGpu;
}

void Executor::CheckRegion(int region) const {
  if (region < 0 || static_cast<size_t>(region) >= program_->regions.size()) {
    throw std::runtime_error("there is no region " + std::to_string(region));
  }
  if (steps_of_[static_cast<size_t>(region)].empty()) {
    throw std::runtime_error("region " + std::to_string(region) + " does nothing");
  }
}

void Executor::RunOnCpu(int region) {
  for (size_t step : steps_of_[static_cast<size_t>(region)]) RunCpuStep(step);
}

int64_t Executor::RunRegion(int region, int number) {
  if (OnGpu(region)) return gpu_->TimeRegion(region, number, spin_us);
  const int64_t start = HostNow();
  for (int n = 0; n < number; ++n) RunOnCpu(region);
  return HostNow() - start;
}

// Inputs that are neither weights nor written by the region: they come from the operator before.
std::vector<View> Executor::InputsOf(int region) const {
  const auto& list = OnGpu(region) ? program_->gpu : program_->cpu;
  std::set<int> others;
  for (const Weight& weight : program_->weights) others.insert(weight.buffer);
  std::vector<View> inputs;
  for (size_t index : steps_of_[static_cast<size_t>(region)]) {
    const Step& step = list[index];
    const size_t first_output = step.args.size() - static_cast<size_t>(step.outputs);
    for (size_t i = 0; i < first_output; ++i) {
      if (others.count(step.args[i].buffer) == 0) inputs.push_back(step.args[i]);
    }
    for (size_t i = first_output; i < step.args.size(); ++i) others.insert(step.args[i].buffer);
  }
  return inputs;
}

void Executor::CoolCaches(const std::vector<View>& inputs, int64_t network_bytes) {
  // Read, not written: processors write long runs of bytes past their caches, which then keep what they held.
  if (cold_.empty()) cold_.assign(kColdBytes, 1);
  const size_t others = std::min(cold_.size(), static_cast<size_t>(std::max<int64_t>(network_bytes, 0)));
  unsigned sum = 0;
  for (size_t at = 0; at < others; at += kCacheLine) sum += cold_[at];
  volatile unsigned sink = sum;
  for (const View& view : inputs) {
    const uint8_t* data = memory_->Host(view);
    if (data == nullptr) continue;
    for (int64_t at = 0; at < view.bytes; at += kCpuAlignment) sink = sink + data[at];
  }
}

int Executor::CountRuns(int region, double min_ms, int64_t* run_ns) {
  *run_ns = std::max<int64_t>(RunRegion(region, 1), 1);
  return static_cast<int>(std::clamp<int64_t>(static_cast<int64_t>(min_ms * 1e6) / *run_ns, 1, kMostRuns));
}

template <typename Take>
std::vector<double> Executor::Sample(int repeat, const Take& take_ns) {
  std::vector<double> samples;
  samples.reserve(static_cast<size_t>(std::max(repeat, 0)));
  const RunDelays delays;
  int again = repeat;  // callers limit the time: at most twice as many
  for (int r = 0; r < repeat; ++r) {
    double least = 0;
    bool disturbed = true;
    for (bool first = true; disturbed && (first || again-- > 0); first = false) {
      const int64_t waited = delays.Sum(), start = HostNow();
      const double taken = static_cast<double>(take_ns());
      const double all = static_cast<double>(HostNow() - start);
      disturbed = static_cast<double>(delays.Sum() - waited) > kWakeNs + kKernelShare * all;
      least = first || !disturbed ? taken : std::min(least, taken);
    }
    samples.push_back(least / 1e6);
  }
  return samples;
}

std::vector<double> Executor::TimeRegion(int region, int repeat, double min_ms, int64_t network_bytes) {
  const CpuThreads::Scope chosen(cpu_threads_);
  CheckRegion(region);
  try {
    RunRegion(region, 1);  // compiles kernels, touches memory
    const std::vector<View> inputs = InputsOf(region);
    // A GPU with memory of its own lowers its clock between lone kernels, and takes longer for those that it profiles.
    // Twice as many runs take the same time to start and to be waited for.
    if (OnGpu(region) && memory_->sharing() == Sharing::kCopied) {
      int64_t run_ns = 0;
      const int number = CountRuns(region, std::max(min_ms, kFollowingMs), &run_ns);
      return Sample(repeat, [&] {
        double once = 0, twice = 0;
        for (int attempt = 0; attempt < kAttempts && twice <= kLeastRatio * once; ++attempt) {
          once = static_cast<double>(RunRegion(region, number));
          twice = static_cast<double>(RunRegion(region, 2 * number));
        }
        const double warm = std::max(twice - once, 1.0) / number;
        if (min_ms > 0) return warm;
        // Its large caches keep one operator's weights, not a network's; and no run takes less than starting it.
        const auto take = [&](bool run) { return gpu_->TimeCold(region, number, inputs, network_bytes, run, spin_us); };
        const auto without = static_cast<double>(take(false));
        return std::max(warm, (static_cast<double>(take(true)) - without) / number);
      });
    }
    if (min_ms > 0) {
      int64_t run_ns = 0;
      const int number = CountRuns(region, min_ms, &run_ns);
      return Sample(repeat, [&] { return static_cast<double>(RunRegion(region, number)) / number; });
    }
    return Sample(repeat, [&] {
      CoolCaches(inputs, network_bytes);
      return OnGpu(region) ? gpu_->TimeRegionOnDevice(region, spin_us) : RunRegion(region, 1);
    });
  } catch (...) {
    if (gpu_) gpu_->Abandon();
    throw;
  }
}

std::vector<double> Executor::TimeRegionBusy(int region, int other, int repeat, double min_ms) {
  const CpuThreads::Scope chosen(cpu_threads_);
  CheckRegion(region);
  if (other != kNobody) CheckRegion(other);
  if (other != kNobody && OnGpu(region) == OnGpu(other)) {
    throw std::runtime_error("both regions are on one processor: they cannot run at the same time");
  }
  try {
    RunRegion(region, 1);
    int64_t run_ns = 0;
    const int number = CountRuns(region, min_ms, &run_ns);
    return Sample(repeat, [&] {
      return OnGpu(region) ? TimeGpuBusy(region, other, number) : TimeCpuBusy(region, other, number, run_ns);
    });
  } catch (...) {
    if (gpu_) gpu_->Abandon();
    throw;
  }
}

// Nanoseconds for one run on the GPU.
double Executor::TimeGpuBusy(int region, int other, int number) {
  const int laps = std::clamp(number + 1, 2, std::max(gpu_->MostRuns(region), 2));
  const GpuList::Laps running = gpu_->StartLaps(region, laps);
  // This thread is the CPU's: it works until the GPU is done, then reads the GPU's own clock.
  while (other != kNobody && !gpu_->Done(running.last)) RunOnCpu(other);
  return static_cast<double>(gpu_->FinishLaps(running, spin_us)) / (laps - 1);
}

// Nanoseconds for one run on the CPU.
double Executor::TimeCpuBusy(int region, int other, int number, int64_t run_ns) {
  if (other == kNobody) return static_cast<double>(RunRegion(region, number)) / number;
  const int most = std::max(gpu_->MostRuns(other), 2);
  const int64_t other_ns = std::max<int64_t>(RunRegion(other, 4) / 4, 1);
  int laps = static_cast<int>(std::clamp<int64_t>(2 * run_ns * number / other_ns + 2, 2, most));
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const GpuList::Laps running = gpu_->StartLaps(other, laps);
    gpu_->Await(running.first, spin_us);
    const int64_t taken = RunRegion(region, number);
    const bool busy = !gpu_->Done(running.last);
    gpu_->FinishLaps(running, spin_us);
    if (busy) return static_cast<double>(taken) / number;
    // The GPU was done before the CPU: give it more to do, or else the CPU less.
    if (laps == most) number = std::max(number / 2, 1);
    laps = std::min(2 * laps, most);
  }
  throw std::runtime_error("region " + std::to_string(other) + " is too short to keep the GPU busy beside region " +
                           std::to_string(region));
}

}  // namespace tvm_codl
