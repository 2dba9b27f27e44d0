// Load on the CPU, to test plans beside other work: "codl.compete".
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

using namespace tvm::runtime;

constexpr int kMostThreads = 64;

// Busy threads of normal priority on the cores of the thread that makes them, until "stop" or the module's end.
class CompetitorNode final : public ModuleNode {
 public:
  explicit CompetitorNode(int threads) {
    ReturnToCpu();
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this] {
        while (!stopped_.load(std::memory_order_relaxed)) continue;
      });
    }
  }
  ~CompetitorNode() final { Stop(); }
  int GetPropertyMask() const final { return ModulePropertyMask::kRunnable; }
  TVM_MODULE_VTABLE_BEGIN("codl_competitor")
  TVM_MODULE_VTABLE_ENTRY("stop", &CompetitorNode::Stop)
  TVM_MODULE_VTABLE_END()

 private:
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
TVM_REGISTER_GLOBAL("codl.compete").set_body_typed([](int threads) {
  if (threads < 1 || threads > kMostThreads) throw std::runtime_error("there must be 1 to 64 competing threads");
  return Module(make_object<CompetitorNode>(threads));
});

}  // namespace tvm_codl
