// How many threads of TVM's pool a run uses, and on which cores they and the thread that runs may be.
#ifndef TVM_CODL_COEXEC_CPU_THREADS_H_
#define TVM_CODL_COEXEC_CPU_THREADS_H_

#include <sched.h>

#include <string>
#include <vector>

#include "../opencl/affinity.h"

namespace tvm_codl {

class CpuThreads {
 public:
  // `threads` 0: as many as there are cores named, or as TVM takes by itself.  No cores: as they are.
  // Throws std::runtime_error for a core that this process may not use, and for more threads than TVM's pool has.
  void Choose(int threads, const std::vector<int>& cores);

  // For the length of a run: the pool works as chosen, and so does this thread, which gets its own cores back at the
  // end.  The pool keeps its state, since it runs nothing else meanwhile, and changes where the next run wants another.
  class Scope {
   public:
    // Where it `roams`, this thread stays on the core where LeaveCpu left it.
    explicit Scope(const CpuThreads& chosen, bool roams = false);

   private:
    ScopedAffinity own_;
  };

  // Whether cores were named.
  bool pinned() const { return pinned_; }

  // The cores of this thread and of each of the pool's threads during a run, as JSON: [[0,1],[0,1]].
  std::string Describe() const;

 private:
  bool Same(const CpuThreads& other) const;
  void Apply() const;
  const cpu_set_t* Claim(bool roams) const;

  int threads_ = 0;
  bool pinned_ = false;
  cpu_set_t cores_{};
};

}  // namespace tvm_codl

#endif  // TVM_CODL_COEXEC_CPU_THREADS_H_
