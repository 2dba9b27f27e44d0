// Makes a run and another process take short turns on the CPU's cores.
#ifndef TVM_CODL_COEXEC_METRONOME_H_
#define TVM_CODL_COEXEC_METRONOME_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace tvm_codl {

// The kernel reschedules a core when a thread wakes up there, and otherwise at clock ticks, 1 to 10 ms apart.  Of two
// computing threads one then waits for whole ticks, longer than an operator takes, and the GPU waits with it.  While
// the metronome ticks, a thread on each core wakes up every kPeriod and sleeps again: both get the same share of the
// core as before, in turns of kPeriod.
class Metronome {
 public:
  static constexpr std::chrono::microseconds kPeriod{500};
  static constexpr size_t kMostCores = 16;

  // Makes the threads, which sleep until it ticks.  With more than kMostCores cores it makes none: there another
  // process finds a core of its own.
  explicit Metronome(const std::vector<int>& cores);
  ~Metronome();
  Metronome(const Metronome&) = delete;
  Metronome& operator=(const Metronome&) = delete;

  // Ticks within the scope; `metronome` may be null.
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
  void Tick(int core);

  std::atomic<bool> ticking_{false};
  bool ended_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::thread> threads_;
};

}  // namespace tvm_codl

#endif  // TVM_CODL_COEXEC_METRONOME_H_
