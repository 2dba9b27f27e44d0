#include "cpu_threads.h"

#include <pthread.h>
#include <tvm/runtime/c_backend_api.h>
#include <tvm/runtime/threading_backend.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "roaming.h"

namespace tvm_codl {

namespace threading = tvm::runtime::threading;

namespace {

// A thread of TVM's pool that has nothing to do gives way so many times before it sleeps, a microsecond or less each.
// TVM's own 300,000 last for 0.3 s: so long after a run of the CPU its threads take cores, and the clock, from what
// runs next, such as a network on the GPU alone.  TVM asks for it as the first pool starts.
[[maybe_unused]] const int idle = setenv("TVM_THREAD_POOL_SPIN_COUNT", "2000", 0);

// TVM keeps a pool for each calling thread; this is the state of this thread's pool.
thread_local CpuThreads in_force;
// TVM's own number of threads; 0 until asked.
thread_local int default_threads = 0;

// For every thread of the pool: pin it to `cores`, or with null restore its first affinity.
struct Pin {
  pthread_t caller;
  const cpu_set_t* cores;
};

int PinWorker(int, TVMParallelGroupEnv*, void* data) {
  static thread_local bool changed = false;
  static thread_local cpu_set_t at_first;
  auto* pin = static_cast<Pin*>(data);
  // The calling thread takes a task too; CpuThreads::Scope pins it.
  if (pthread_equal(pthread_self(), pin->caller) != 0) return 0;
  if (pin->cores == nullptr) {
    if (changed) sched_setaffinity(0, sizeof(at_first), &at_first);
    return 0;
  }
  if (!changed) changed = sched_getaffinity(0, sizeof(at_first), &at_first) == 0;
  return sched_setaffinity(0, sizeof(*pin->cores), pin->cores) == 0 ? 0 : -1;
}

// Makes the pool use `count` threads and returns how many it has, which may be fewer.  TVM then takes `most` for the
// number of processors (0: the environment's); with one processor it bypasses the pool.
int Configure(int most, int count, const cpu_set_t* cores) {
  threading::Configure(threading::ThreadGroup::kBig, count, {});
  threading::SetMaxConcurrency(most);
  Pin pin{pthread_self(), cores};
  TVMBackendParallelLaunch(PinWorker, &pin, 0);
  return threading::NumThreads();
}

int ReadAffinity(int task, TVMParallelGroupEnv*, void* data) {
  auto& sets = *static_cast<std::vector<cpu_set_t>*>(data);
  const auto index = static_cast<size_t>(task);
  return index < sets.size() ? sched_getaffinity(0, sizeof(cpu_set_t), &sets[index]) : 0;
}

}  // namespace

void CpuThreads::Choose(int threads, const std::vector<int>& cores) {
  if (threads < 0) throw std::runtime_error("the number of CPU threads must not be negative");
  for (int core : cores) {
    if (core < 0 || core >= CPU_SETSIZE) throw std::runtime_error("there is no core " + std::to_string(core));
  }
  CpuThreads wanted;
  wanted.threads_ = threads;
  wanted.pinned_ = !cores.empty();
  wanted.cores_ = ToCpuSet(cores);
  if (wanted.pinned_) {
    // The kernel leaves out the cores that this process may not use, and refuses where none is left.
    const ScopedAffinity trial(wanted.cores_);
    const cpu_set_t given = trial.changed() ? AllowedCores() : ToCpuSet({});
    for (int core : cores) {
      if (!CPU_ISSET(static_cast<size_t>(core), &given)) {
        throw std::runtime_error("core " + std::to_string(core) + " is not there, or not for this process");
      }
    }
    if (threads > CPU_COUNT(&given)) throw std::runtime_error("there are more CPU threads than cores for them");
  }
  wanted.Apply();
  *this = wanted;
}

bool CpuThreads::Same(const CpuThreads& other) const {
  return threads_ == other.threads_ && pinned_ == other.pinned_ && (!pinned_ || CPU_EQUAL(&cores_, &other.cores_));
}

void CpuThreads::Apply() const {
  if (Same(in_force)) return;
  // TVM's own pinning, unless the environment forbids it, also moves the calling thread.
  cpu_set_t caller;
  CPU_ZERO(&caller);
  const bool has_affinity = sched_getaffinity(0, sizeof(caller), &caller) == 0;
  if (default_threads == 0) default_threads = threading::NumThreads();
  const bool unchanged = threads_ == 0 && !pinned_;
  int count = threads_;
  if (count == 0) count = pinned_ ? std::min(CPU_COUNT(&cores_), default_threads) : default_threads;
  const int got = Configure(unchanged ? 0 : count, count, pinned_ ? &cores_ : nullptr);
  in_force = *this;
  if (got < count) {
    Configure(0, default_threads, nullptr);
    in_force = CpuThreads();
  }
  if (has_affinity) sched_setaffinity(0, sizeof(caller), &caller);
  if (got < count) {
    throw std::runtime_error("there are " + std::to_string(got) + " CPU threads, not " + std::to_string(count) +
                             " (TVM_NUM_THREADS of the server sets how many)");
  }
}

const cpu_set_t& CpuThreads::Claim(bool roams) const {
  if (!roams) ReturnToCpu();
  Apply();
  return cores_;
}

CpuThreads::Scope::Scope(const CpuThreads& chosen, bool roams) : own_(chosen.Claim(roams)) {}

std::vector<std::vector<int>> CpuThreads::Cores() const {
  const Scope scope(*this);
  std::vector<cpu_set_t> sets(static_cast<size_t>(threading::NumThreads()), ToCpuSet({}));
  TVMBackendParallelLaunch(ReadAffinity, &sets, 0);
  std::vector<std::vector<int>> cores;
  for (const cpu_set_t& set : sets) {
    if (CPU_COUNT(&set) != 0) cores.push_back(ToCores(set));
  }
  return cores;
}

}  // namespace tvm_codl
