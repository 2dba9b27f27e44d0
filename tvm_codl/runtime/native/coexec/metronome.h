// Short turns on the CPU's cores for a run that shares them with another process.
#ifndef TVM_CODL_COEXEC_METRONOME_H_
#define TVM_CODL_COEXEC_METRONOME_H_

#include <sched.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace tvm_codl {

// The kernel looks at who should have a core when a thread wakes up there, and else at its clock's ticks, 1 to 10 ms
// apart.  So of two that compute, one stands still for whole ticks, which is longer than an operator of a network and
// makes the GPU wait.  While it beats, a thread on each core wakes up every kPeriod and sleeps again at once: both have
// as much of the core as before, by turns of kPeriod.
class Metronome {
 public:
  static constexpr std::chrono::microseconds kPeriod{500};
  static constexpr size_t kMostCores = 16;

  // The threads are made here, and sleep until it beats.  Of more than kMostCores cores none is kept: there another
  // process finds a core of its own.
  explicit Metronome(const cpu_set_t& cores);
  ~Metronome();
  Metronome(const Metronome&) = delete;
  Metronome& operator=(const Metronome&) = delete;

  // Beats for its length; nothing where there is no metronome.
  class Scope {
   public:
    explicit Scope(Metronome* metronome);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Metronome* metronome_;
  };

 private:
  void Beat(size_t core);

  std::atomic<bool> beating_{false};
  bool ended_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::thread> threads_;
};

}  // namespace tvm_codl

#endif  // TVM_CODL_COEXEC_METRONOME_H_
