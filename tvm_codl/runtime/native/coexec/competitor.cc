// Load on the CPU, to see how plans do beside other work: "codl.compete".
#include <tvm/runtime/module.h>
#include <tvm/runtime/packed_func.h>
#include <tvm/runtime/registry.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "roaming.h"

namespace tvm_codl {

namespace {

using tvm::runtime::make_object;
using tvm::runtime::Module;
using tvm::runtime::ModuleNode;
using tvm::runtime::ObjectPtr;
using tvm::runtime::PackedFunc;
using tvm::runtime::String;
using tvm::runtime::TVMArgs;
using tvm::runtime::TVMRetValue;

constexpr int kMostThreads = 64;

// Threads that only count, of usual priority, on the cores of the thread that makes them; "stop" or the end of the
// module ends them.
class CompetitorNode final : public ModuleNode {
 public:
  explicit CompetitorNode(int threads) {
    ReturnToCpu();
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Count(); });
  }
  ~CompetitorNode() final { Stop(); }
  const char* type_key() const final { return "codl_competitor"; }
  int GetPropertyMask() const final { return tvm::runtime::ModulePropertyMask::kRunnable; }

  PackedFunc GetFunction(const String& name, const ObjectPtr<Object>& self) final {
    if (name != "stop") return PackedFunc();
    return PackedFunc([self, this](TVMArgs, TVMRetValue*) { Stop(); });
  }

 private:
  void Count() const {
    while (!stopped_.load(std::memory_order_relaxed)) {
    }
  }
  void Stop() {
    stopped_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  std::atomic<bool> stopped_{false};
  std::vector<std::thread> threads_;
};

}  // namespace

// (threads) -> the module that stops them.
TVM_REGISTER_GLOBAL("codl.compete").set_body([](TVMArgs args, TVMRetValue* rv) {
  const int threads = args[0];
  if (threads < 1 || threads > kMostThreads) throw std::runtime_error("there must be 1 to 64 competing threads");
  *rv = Module(make_object<CompetitorNode>(threads));
});

}  // namespace tvm_codl
