#include "metronome.h"

#include <pthread.h>

#include <system_error>

namespace tvm_codl {

Metronome::Metronome(const cpu_set_t& cores) {
  if (static_cast<size_t>(CPU_COUNT(&cores)) > kMostCores) return;
  threads_.reserve(kMostCores);
  for (size_t core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &cores)) continue;
    try {
      threads_.emplace_back([this, core] { Beat(core); });
    } catch (const std::system_error&) {
      return;  // no more threads for this process: its runs take the kernel's turns
    }
    pthread_setname_np(threads_.back().native_handle(), "codl metronome");
  }
}

Metronome::~Metronome() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ended_ = true;
    beating_ = false;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Metronome::Beat(size_t core) {
  cpu_set_t own;
  CPU_ZERO(&own);
  CPU_SET(core, &own);
  sched_setaffinity(0, sizeof(own), &own);
  while (true) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return ended_ || beating_; });
      if (ended_) return;
    }
    while (beating_.load(std::memory_order_relaxed)) std::this_thread::sleep_for(kPeriod);
  }
}

Metronome::Scope::Scope(Metronome* metronome) : metronome_(metronome) {
  if (metronome_ == nullptr) return;
  {
    std::lock_guard<std::mutex> lock(metronome_->mutex_);
    metronome_->beating_ = true;
  }
  metronome_->changed_.notify_all();
}

// Who sleeps for a period finds it beating again where the next run follows at once.
Metronome::Scope::~Scope() {
  if (metronome_ != nullptr) metronome_->beating_ = false;
}

}  // namespace tvm_codl
