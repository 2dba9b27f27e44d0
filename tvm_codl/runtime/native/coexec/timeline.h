// The events of a run on both processors, in one clock.
#ifndef TVM_CODL_COEXEC_TIMELINE_H_
#define TVM_CODL_COEXEC_TIMELINE_H_

#include <chrono>
#include <cstdint>

namespace tvm_codl {

// Nanoseconds of the host's steady clock.
inline int64_t HostNow() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// kFeed and kSignal are the CPU's work for the GPU: enqueueing commands, and signalling that something is done.
enum class Kind : uint8_t { kKernel, kWait, kShare, kFeed, kSignal };

struct Span {
  int64_t start = 0;  // ns, host clock
  int64_t end = 0;
  int region = -1;
  int step = -1;  // index in the processor's list
  Kind kind = Kind::kKernel;
  bool gpu = false;
};

}  // namespace tvm_codl

#endif  // TVM_CODL_COEXEC_TIMELINE_H_
