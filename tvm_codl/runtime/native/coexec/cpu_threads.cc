#include "cpu_threads.h"

#include <pthread.h>
#include <tvm/runtime/c_backend_api.h>
#include <tvm/runtime/threading_backend.h>

#include <algorithm>
#include <stdexcept>

#include "roaming.h"

namespace tvm_codl {

namespace threading = tvm::runtime::threading;

namespace {

// TVM has a pool for each thread that asks for one; this is how the one of this thread was left.
thread_local CpuThreads in_force;
// What TVM takes by itself; 0 until it was asked.
thread_local int usual_threads = 0;

// What every thread of the pool does: `cores` become its own, or null gives it back those that it had at first.
struct Pin {
  pthread_t caller;
  const cpu_set_t* cores;
};

int PinWorker(int, TVMParallelGroupEnv*, void* data) {
  static thread_local bool changed = false;
  static thread_local cpu_set_t at_first;
  auto* pin = static_cast<Pin*>(data);
  // The thread that runs takes a task too, and its cores are the scope's matter.
  if (pthread_equal(pthread_self(), pin->caller) != 0) return 0;
  if (pin->cores == nullptr) {
    if (changed) sched_setaffinity(0, sizeof(at_first), &at_first);
    return 0;
  }
  if (!changed) changed = sched_getaffinity(0, sizeof(at_first), &at_first) == 0;
  return sched_setaffinity(0, sizeof(*pin->cores), pin->cores) == 0 ? 0 : -1;
}

// Has the pool use `count` threads, of which there may be fewer; returns how many there are.  `most` is what TVM then
// takes for the number of processors (0: what the environment says); with one it does not go through the pool at all.
int Use(int most, int count, const cpu_set_t* cores) {
  threading::Configure(threading::ThreadGroup::kBig, count, {});
  threading::SetMaxConcurrency(most);
  Pin pin{pthread_self(), cores};
  TVMBackendParallelLaunch(PinWorker, &pin, 0);
  return threading::NumThreads();
}

struct Seen {
  std::vector<cpu_set_t> cores;
};

int SeeWorker(int task, TVMParallelGroupEnv*, void* data) {
  auto& cores = static_cast<Seen*>(data)->cores;
  const auto index = static_cast<size_t>(task);
  return index < cores.size() ? sched_getaffinity(0, sizeof(cpu_set_t), &cores[index]) : 0;
}

std::string Json(const cpu_set_t& cores) {
  std::string text = "[";
  for (size_t core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &cores)) text += (text.size() > 1 ? "," : "") + std::to_string(core);
  }
  return text + "]";
}

}  // namespace

void CpuThreads::Choose(int threads, const std::vector<int>& cores) {
  if (threads < 0) throw std::runtime_error("the number of CPU threads must not be negative");
  CpuThreads wanted;
  wanted.threads_ = threads;
  wanted.pinned_ = !cores.empty();
  CPU_ZERO(&wanted.cores_);
  for (int core : cores) {
    if (core < 0 || core >= CPU_SETSIZE) throw std::runtime_error("there is no core " + std::to_string(core));
    CPU_SET(static_cast<size_t>(core), &wanted.cores_);
  }
  if (wanted.pinned_) {
    // The kernel leaves out the cores that this process may not use, and refuses where none is left.
    const ScopedAffinity tried(&wanted.cores_);
    cpu_set_t given;
    CPU_ZERO(&given);
    if (tried.changed()) sched_getaffinity(0, sizeof(given), &given);
    for (int core : cores) {
      if (!CPU_ISSET(static_cast<size_t>(core), &given)) {
        throw std::runtime_error("core " + std::to_string(core) + " is not there, or not for this process");
      }
    }
    const int count = CPU_COUNT(&wanted.cores_);
    if (threads > count) throw std::runtime_error("there are more CPU threads than cores for them");
  }
  wanted.Apply();
  *this = wanted;
}

bool CpuThreads::Same(const CpuThreads& other) const {
  return threads_ == other.threads_ && pinned_ == other.pinned_ && (!pinned_ || CPU_EQUAL(&cores_, &other.cores_));
}

void CpuThreads::Apply() const {
  if (Same(in_force)) return;
  // TVM's own pinning, where the environment does not forbid it, also moves the thread that calls.
  cpu_set_t caller;
  CPU_ZERO(&caller);
  const bool known = sched_getaffinity(0, sizeof(caller), &caller) == 0;
  if (usual_threads == 0) usual_threads = threading::NumThreads();
  const bool usual = threads_ == 0 && !pinned_;
  int count = threads_;
  if (count == 0) count = pinned_ ? std::min(CPU_COUNT(&cores_), usual_threads) : usual_threads;
  const int got = Use(usual ? 0 : count, count, pinned_ ? &cores_ : nullptr);
  in_force = *this;
  if (got < count) {
    Use(0, usual_threads, nullptr);
    in_force = CpuThreads();
  }
  if (known) sched_setaffinity(0, sizeof(caller), &caller);
  if (got < count) {
    throw std::runtime_error("there are " + std::to_string(got) + " CPU threads, not " + std::to_string(count) +
                             " (TVM_NUM_THREADS of the server sets how many)");
  }
}

const cpu_set_t* CpuThreads::Claim(bool roams) const {
  if (!roams) ReturnToCpu();
  Apply();
  return pinned_ ? &cores_ : nullptr;
}

CpuThreads::Scope::Scope(const CpuThreads& chosen, bool roams) : own_(chosen.Claim(roams)) {}

std::string CpuThreads::Describe() const {
  const Scope scope(*this);
  Seen seen;
  cpu_set_t none;
  CPU_ZERO(&none);
  seen.cores.assign(static_cast<size_t>(threading::NumThreads()), none);
  TVMBackendParallelLaunch(SeeWorker, &seen, 0);
  std::string text = "[";
  for (const cpu_set_t& cores : seen.cores) {
    if (CPU_COUNT(&cores) != 0) text += (text.size() > 1 ? "," : "") + Json(cores);
  }
  return text + "]";
}

}  // namespace tvm_codl
