// How many threads of TVM's pool a run uses, and on which cores they and the calling thread may run.
#ifndef TVM_CODL_COEXEC_CPU_THREADS_H_
#define TVM_CODL_COEXEC_CPU_THREADS_H_

#include <sched.h>

#include <vector>

#include "../opencl/affinity.h"

namespace tvm_codl {

class CpuThreads {
 public:
  // `threads` 0: one for each core given, or TVM's default.  No cores: no pinning.
  // Throws std::runtime_error for a core that this process may not use, and for more threads than TVM's pool has.
  void Choose(int threads, const std::vector<int>& cores);

  // Applies the choice to the pool and to this thread, which gets its own cores back at the end.  The pool keeps its
  // state until a run needs another.
  class Scope {
   public:
    // With `roams`, this thread stays where LeaveCpu put it.
    explicit Scope(const CpuThreads& chosen, bool roams = false);

   private:
    ScopedAffinity own_;
  };

  // Whether cores were chosen.
  bool pinned() const { return pinned_; }

  // The cores of this thread and of each of the pool's threads during a run.
  std::vector<std::vector<int>> Cores() const;

 private:
  bool Same(const CpuThreads& other) const;
  void Apply() const;
  // The cores of the calling thread, after the pool works as chosen; empty if none were chosen.
  const cpu_set_t& Claim(bool roams) const;

  int threads_ = 0;
  bool pinned_ = false;
  cpu_set_t cores_{};
};

}  // namespace tvm_codl

#endif  // TVM_CODL_COEXEC_CPU_THREADS_H_
