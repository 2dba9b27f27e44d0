#include "known_work.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <system_error>
#include <thread>

#include "../opencl/affinity.h"

namespace tvm_codl {

namespace {

using Clock = std::chrono::steady_clock;

using Lanes = float __attribute__((vector_size(16)));
// 0.2 to 0.5 ms for all.
constexpr int kSteps = 100'000;
// More than any core has in flight.
constexpr int kChains = 12;
// A core that is taken comes late; the others do not wait for it longer than this.
constexpr std::chrono::milliseconds kPatience{2};

// Multiplications and additions that do not wait for one another, as in most of a network: they want all of a core's
// units, and take longer too where the core's other hardware thread is somebody else's.  Unrolled, the sums stay in
// registers: through the stack, the same work on an idle Xeon took now 1.0, now 1.9 times its least.
float Work(float x) {
  Lanes sums[kChains];
  for (Lanes& sum : sums) sum = Lanes{x, x, x, x};
  const Lanes half{0.5F, 0.5F, 0.5F, 0.5F}, one{1.0F, 1.0F, 1.0F, 1.0F};
  for (int i = 0; i < kSteps; ++i) {
#pragma GCC unroll 12
    for (Lanes& sum : sums) sum = sum * half + one;
  }
  Lanes all = sums[0];
  for (const Lanes& sum : sums) all += sum;
  return all[0];
}

}  // namespace

std::vector<double> KnownWork(const std::vector<std::vector<int>>& cores) {
  std::vector<double> times(cores.size(), -1.0);
  std::atomic<size_t> ready{0};
  std::vector<std::thread> threads;
  threads.reserve(cores.size());
  for (size_t i = 0; i < cores.size(); ++i) {
    try {
      threads.emplace_back([&, i] {
        const ScopedAffinity own(ToCpuSet(cores[i]));
        const Clock::time_point arrived = Clock::now();
        ++ready;
        while (own.changed() && ready < cores.size() && Clock::now() - arrived < kPatience) continue;
        if (!own.changed()) return;
        const Clock::time_point start = Clock::now();
        volatile float result = Work(1.0F);
        static_cast<void>(result);
        times[i] = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
      });
    } catch (const std::system_error&) {
      ++ready;  // no more threads for this process
    }
  }
  for (std::thread& thread : threads) thread.join();
  times.erase(std::remove(times.begin(), times.end(), -1.0), times.end());
  return times;
}

}  // namespace tvm_codl
