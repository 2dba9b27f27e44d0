// The co-executor's program: two in-order lists of steps over a set of buffers.
//
// It is written at build time as JSON and read at load.  Parse() checks every index, size and order in it, so that a
// damaged or hand-made library is refused before anything runs.
#ifndef TVM_CODL_COEXEC_PROGRAM_H_
#define TVM_CODL_COEXEC_PROGRAM_H_

#include <dlpack/dlpack.h>
#include <picojson.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tvm_codl {

enum class Processor { kCpu, kGpu };

// Who touches a buffer: one processor alone, or both.
enum class Space { kCpu, kGpu, kShared };

// Buffers of one block share one allocation, each from its byte `at` on.  Overlapping ones are never needed at the same
// time: the program's writer guarantees that.  Where both processors share one memory, buffers with a `common` lie in
// one common allocation instead, each from that byte on.
struct Buffer {
  int64_t bytes = 0;
  Space space = Space::kCpu;
  int block = -1;
  int64_t at = 0;
  int64_t common = -1;
};

// A compact tensor inside a buffer, `offset` bytes from its start.
struct View {
  int buffer = -1;
  int64_t offset = 0;
  int64_t bytes = 0;
  DLDataType dtype{};
  std::vector<int64_t> shape;
};

enum class Do {
  kCall,    // run `function` on `args`, of which the last `outputs` are written
  kCopy,    // args[0] -> args[1], on this list's own processor
  kWait,    // until the other list's `event`
  kSignal,  // `event`
  kToGpu,   // make what the CPU wrote to args[0] visible to the GPU (GPU list only)
  kToCpu,   // make what the GPU wrote to args[0] visible to the CPU (GPU list only)
};

struct Step {
  Do what = Do::kCall;
  int region = -1;
  int event = -1;
  int outputs = 0;
  std::string function;
  std::vector<View> args;
};

struct Region {
  std::string name;
  Processor processor = Processor::kCpu;
};

struct Weight {
  int buffer = -1;
  std::string name;
};

struct Port {
  std::string name;
  View view;
};

struct Program {
  std::vector<Buffer> buffers;
  int blocks = 0;  // weights and ports have one each to themselves
  std::vector<Weight> weights;
  std::vector<Region> regions;
  std::vector<Step> cpu;
  std::vector<Step> gpu;
  int events = 0;
  std::vector<Port> inputs;
  std::vector<Port> outputs;
  // feed_until[i]: how many steps of the GPU list may be enqueued before CPU step i runs; one more entry for the end.
  std::vector<size_t> feed_until;

  // Throws std::runtime_error that names the first thing wrong.
  static Program Parse(const picojson::value& json);
};

}  // namespace tvm_codl

#endif  // TVM_CODL_COEXEC_PROGRAM_H_
