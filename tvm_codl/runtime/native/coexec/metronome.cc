#include "metronome.h"

#include <pthread.h>

#include <system_error>

#include "../opencl/affinity.h"

namespace tvm_codl {

Metronome::Metronome(const std::vector<int>& cores) {
  if (cores.size() > kMostCores) return;
  threads_.reserve(kMostCores);
  for (const int core : cores) {
    try {
      threads_.emplace_back([this, core] { Tick(core); });
    } catch (const std::system_error&) {
      return;  // no more threads for this process: the kernel's own turns must do
    }
    pthread_setname_np(threads_.back().native_handle(), "codl metronome");
  }
}

Metronome::~Metronome() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ended_ = true;
    ticking_ = false;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Metronome::Tick(int core) {
  const cpu_set_t own = ToCpuSet({core});
  sched_setaffinity(0, sizeof(own), &own);
  while (true) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return ended_ || ticking_; });
      if (ended_) return;
    }
    while (ticking_.load(std::memory_order_relaxed)) std::this_thread::sleep_for(kPeriod);
  }
}

Metronome::Scope::Scope(Metronome* metronome) : metronome_(metronome) {
  if (metronome_ == nullptr) return;
  {
    std::lock_guard<std::mutex> lock(metronome_->mutex_);
    metronome_->ticking_ = true;
  }
  metronome_->changed_.notify_all();
}

// If the next run follows at once, threads that sleep for a period just go on.
Metronome::Scope::~Scope() {
  if (metronome_ != nullptr) metronome_->ticking_ = false;
}

}  // namespace tvm_codl
