// How long threads waited for a core because of other threads or processes.
#ifndef TVM_CODL_COEXEC_RUN_DELAY_H_
#define TVM_CODL_COEXEC_RUN_DELAY_H_

#include <cstdint>
#include <vector>

namespace tvm_codl {

// Nanoseconds since this thread began, from the kernel's /proc/thread-self/schedstat; always 0 without that file.
int64_t RunDelay();

// The same for all threads that this process has when it is made.
class RunDelays {
 public:
  RunDelays();
  ~RunDelays();
  RunDelays(const RunDelays&) = delete;
  RunDelays& operator=(const RunDelays&) = delete;
  // Of all of them together.  It may fall where a thread has ended.
  int64_t Sum() const;

 private:
  std::vector<int> files_;
};

}  // namespace tvm_codl

#endif  // TVM_CODL_COEXEC_RUN_DELAY_H_
