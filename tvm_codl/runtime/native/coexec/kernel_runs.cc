// Runs of one kernel on this side of a session: how long many take back to back, and whether all give one answer.
#include <tvm/runtime/device_api.h>
#include <tvm/runtime/module.h>
#include <tvm/runtime/ndarray.h>
#include <tvm/runtime/packed_func.h>
#include <tvm/runtime/registry.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace tvm_codl {

namespace {

using namespace tvm::runtime;

constexpr double kLeastRunS = 1e-7;  // no kernel takes less

// A function of a library and the device that it runs on.
class Kernel {
 public:
  // The first four arguments of every call here: module, function, the device's type and number.
  static constexpr int kArguments = 4;

  explicit Kernel(const TVMArgs& args) {
    const int type = args[2];
    device_ = {static_cast<DLDeviceType>(type), args[3]};
    Module module = args[0];
    const std::string name = args[1];
    function_ = module.GetFunction(name, true);
    if (function_ == nullptr) throw std::runtime_error("the library has no function " + name);
  }
  void Run(const TVMArgs& arguments) const {
    TVMRetValue nothing;
    function_.CallPacked(arguments, &nothing);
  }
  void Wait() const { DeviceAPI::Get(device_)->StreamSync(device_, nullptr); }

 private:
  PackedFunc function_;
  DLDevice device_;
};

TVMArgs Behind(const TVMArgs& args, int first) {
  return TVMArgs(args.values + first, args.type_codes + first, args.size() - first);
}

void Check(int result) {
  if (result != 0) throw std::runtime_error(TVMGetLastError());
}

std::vector<char> Read(DLTensor* array) {
  std::vector<char> bytes(GetDataSize(*array));
  Check(TVMArrayCopyToBytes(array, bytes.data(), bytes.size()));
  return bytes;
}

void Write(DLTensor* array, std::vector<char>& bytes) {
  Check(TVMArrayCopyFromBytes(array, bytes.data(), bytes.size()));
}

}  // namespace

// (module, function, device's type and number, runs, repeats, min_ms, arguments...) -> JSON: the seconds of one run in
// each repeat.  A repeat's runs are enqueued one behind the other and waited for once: at least `runs`, and so many
// that they take `min_ms`.
TVM_REGISTER_GLOBAL("codl.time_kernel").set_body([](TVMArgs args, TVMRetValue* rv) {
  using Clock = std::chrono::steady_clock;
  constexpr double kGrowth = 1.6;  // at least, from one try to the next: a first, lone run says little
  const Kernel kernel(args);
  int64_t runs = args[Kernel::kArguments];
  const int repeats = args[Kernel::kArguments + 1];
  const double least_s = args[Kernel::kArguments + 2].operator double() / 1e3;
  if (runs < 1) throw std::runtime_error("a kernel is timed over at least one run");
  const TVMArgs arguments = Behind(args, Kernel::kArguments + 3);
  const auto take_s = [&] {
    kernel.Wait();
    const Clock::time_point start = Clock::now();
    for (int64_t run = 0; run < runs; ++run) kernel.Run(arguments);
    kernel.Wait();
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  kernel.Run(arguments);
  std::ostringstream json;
  json.precision(std::numeric_limits<double>::max_digits10);
  json << "[";
  for (int i = 0; i < repeats; ++i) {
    double taken = take_s();
    for (; taken < least_s; taken = take_s()) {
      const double enough = least_s / std::max(taken / runs, kLeastRunS);
      runs = static_cast<int64_t>(std::max(enough, kGrowth * runs)) + 1;
    }
    json << (i > 0 ? "," : "") << taken / runs;
  }
  json << "]";
  *rv = json.str();
});

// (module, function, device's type and number, runs, the result's place among the arguments, arguments...) -> how many
// of the runs gave another answer than the first, bit by bit; the first's is left in the result.  Before each run the
// result is filled with NaN, so that what a kernel does not write is seen.
TVM_REGISTER_GLOBAL("codl.compare_runs").set_body([](TVMArgs args, TVMRetValue* rv) {
  const Kernel kernel(args);
  const int runs = args[Kernel::kArguments], place = args[Kernel::kArguments + 1];
  const TVMArgs arguments = Behind(args, Kernel::kArguments + 2);
  if (place < 0 || place >= arguments.size()) throw std::runtime_error("a kernel's result is one of its arguments");
  DLTensor* result = arguments[place];
  std::vector<char> unwritten(GetDataSize(*result), static_cast<char>(0xff)), first;
  int differing = 0;
  for (int run = 0; run < runs; ++run) {
    Write(result, unwritten);
    kernel.Run(arguments);
    kernel.Wait();
    std::vector<char> answer = Read(result);
    if (run == 0) {
      first = std::move(answer);
    } else if (answer != first) {
      ++differing;
    }
  }
  if (runs > 0) Write(result, first);
  *rv = differing;
});

}  // namespace tvm_codl
