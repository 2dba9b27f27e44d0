// The co-executor as TVM modules, so that all of it works over RPC.
//
//   codl.create_library(program, plan, n, name1, array1, ...) -> the library's root module, at build time
//   library["create"](device_id, sharing) -> an executor:
//     set_input(i, array)  get_output(i, array)  run()  benchmark(number, repeat)  timeline()  ran()  fix_plan(n)
//     time_region(i, repeat, min_ms, network_bytes)  time_region_busy(i, other, repeat, min_ms)
//     copied_bytes()  memory_bytes()  sharing()  spin_us(n)  choose_cpu(threads, core1, core2, ...)  cpu_cores()
//     flush_every(commands)  adaptation()
//   codl.create_choice(state1, state2, ...) -> what chooses among plans, by itself: note(ms, cpu_ms) -> the next run's
//     plan; adaptation()
//   Lists come back as JSON text, which every RPC client can read.
#include <dmlc/memory_io.h>
#include <tvm/runtime/module.h>
#include <tvm/runtime/packed_func.h>
#include <tvm/runtime/registry.h>

#include <memory>

#include "alternatives.h"
#include "json.h"
#include "plans.h"

namespace tvm_codl {

using tvm::runtime::make_object;
using tvm::runtime::Module;
using tvm::runtime::ModuleNode;
using tvm::runtime::NDArray;
using tvm::runtime::Object;
using tvm::runtime::ObjectPtr;
using tvm::runtime::PackedFunc;
using tvm::runtime::String;
using tvm::runtime::TVMArgs;
using tvm::runtime::TVMRetValue;

namespace {

constexpr uint64_t kMagic = 0x6c646f6378656f63;  // "coexcodl"

}  // namespace

class ExecutorNode final : public ModuleNode {
 public:
  explicit ExecutorNode(std::unique_ptr<Alternatives> plans) : plans_(std::move(plans)) {}
  const char* type_key() const final { return "codl_executor"; }
  int GetPropertyMask() const final { return tvm::runtime::ModulePropertyMask::kRunnable; }

  PackedFunc GetFunction(const String& name, const ObjectPtr<Object>& self) final {
    Alternatives* run = plans_.get();
    Executor* first = &run->first();
    if (name == "set_input") {
      return PackedFunc(
          [self, run](TVMArgs args, TVMRetValue*) { run->SetInput(args[0], *args[1].operator DLTensor*()); });
    }
    if (name == "get_output") {
      return PackedFunc(
          [self, run](TVMArgs args, TVMRetValue*) { run->GetOutput(args[0], args[1].operator DLTensor*()); });
    }
    if (name == "run") return PackedFunc([self, run](TVMArgs, TVMRetValue*) { run->Run(); });
    if (name == "benchmark") {
      return PackedFunc([self, run](TVMArgs args, TVMRetValue* rv) { *rv = Json(run->Benchmark(args[0], args[1])); });
    }
    if (name == "time_region") {
      return PackedFunc([self, first](TVMArgs args, TVMRetValue* rv) {
        *rv = Json(first->TimeRegion(args[0], args[1], args[2], args[3]));
      });
    }
    if (name == "time_region_busy") {
      return PackedFunc([self, first](TVMArgs args, TVMRetValue* rv) {
        *rv = Json(first->TimeRegionBusy(args[0], args[1], args[2], args[3]));
      });
    }
    if (name == "timeline") {
      return PackedFunc([self, run](TVMArgs, TVMRetValue* rv) { *rv = run->Timeline(); });
    }
    if (name == "copied_bytes") return PackedFunc([self, run](TVMArgs, TVMRetValue* rv) { *rv = run->copied_bytes(); });
    if (name == "memory_bytes") {
      return PackedFunc([self, run](TVMArgs, TVMRetValue* rv) {
        const Executor::HeldBytes held = run->held_bytes();
        *rv = "{\"weights\":" + std::to_string(held.weights) + ",\"tensors\":" + std::to_string(held.tensors) +
              ",\"scratch\":" + std::to_string(held.scratch) + '}';
      });
    }
    if (name == "sharing") {
      return PackedFunc([self, first](TVMArgs, TVMRetValue* rv) { *rv = std::string(SharingName(first->sharing())); });
    }
    if (name == "choose_cpu") {
      return PackedFunc([self, run](TVMArgs args, TVMRetValue*) {
        std::vector<int> cores;
        for (int i = 1; i < args.size(); ++i) cores.push_back(args[i]);
        run->ChooseCpu(args[0], cores);
      });
    }
    if (name == "cpu_cores") return PackedFunc([self, first](TVMArgs, TVMRetValue* rv) { *rv = first->CpuCores(); });
    if (name == "flush_every") return PackedFunc([self, run](TVMArgs args, TVMRetValue*) { run->FlushEvery(args[0]); });
    if (name == "spin_us") return PackedFunc([self, run](TVMArgs args, TVMRetValue*) { run->SpinUs(args[0]); });
    if (name == "adaptation") return PackedFunc([self, run](TVMArgs, TVMRetValue* rv) { *rv = run->Adaptation(); });
    if (name == "ran") return PackedFunc([self, run](TVMArgs, TVMRetValue* rv) { *rv = run->ran(); });
    if (name == "fix_plan") return PackedFunc([self, run](TVMArgs args, TVMRetValue*) { run->Fix(args[0]); });
    return PackedFunc();
  }

 private:
  std::unique_ptr<Alternatives> plans_;
};

class LibraryNode final : public ModuleNode {
 public:
  LibraryNode(std::string program, std::string about, std::vector<WeightStore::Named> weights)
      : json_(std::move(program)),
        about_(std::move(about)),
        plans_(ParsePlans(json_)),
        weights_(std::make_shared<WeightStore>(std::move(weights))) {}
  const char* type_key() const final { return "codl_library"; }
  int GetPropertyMask() const final {
    return tvm::runtime::ModulePropertyMask::kBinarySerializable | tvm::runtime::ModulePropertyMask::kRunnable;
  }

  PackedFunc GetFunction(const String& name, const ObjectPtr<Object>& self) final {
    if (name == "create") {
      return PackedFunc([self, this](TVMArgs args, TVMRetValue* rv) {
        auto plans = std::make_unique<Alternatives>(plans_, weights_, imports(), args[0], args[1]);
        *rv = Module(make_object<ExecutorNode>(std::move(plans)));
      });
    }
    if (name == "program") return PackedFunc([self, this](TVMArgs, TVMRetValue* rv) { *rv = json_; });
    if (name == "about") return PackedFunc([self, this](TVMArgs, TVMRetValue* rv) { *rv = about_; });
    return PackedFunc();
  }

  void SaveToBinary(dmlc::Stream* stream) final {
    stream->Write(kMagic);
    stream->Write(json_);
    stream->Write(about_);
    stream->Write(static_cast<uint64_t>(weights_->names().size()));
    for (const std::string& name : weights_->names()) {
      stream->Write(name);
      weights_->OnHost(name).Save(stream);
    }
  }

  static Module LoadFromBinary(void* handle) {
    auto* stream = static_cast<dmlc::Stream*>(handle);
    uint64_t magic = 0, count = 0;
    std::string program, about;
    if (!stream->Read(&magic) || magic != kMagic || !stream->Read(&program) || !stream->Read(&about) ||
        !stream->Read(&count)) {
      throw std::runtime_error("the library's co-execution part is damaged or of another version");
    }
    std::vector<WeightStore::Named> weights;
    for (uint64_t i = 0; i < count; ++i) {
      std::string name;
      NDArray array;
      if (!stream->Read(&name) || !array.Load(stream)) throw std::runtime_error("the library's weights are damaged");
      weights.emplace_back(std::move(name), std::move(array));
    }
    return Module(make_object<LibraryNode>(std::move(program), std::move(about), std::move(weights)));
  }

 private:
  std::string json_;
  std::string about_;
  std::vector<PlannedProgram> plans_;
  std::shared_ptr<WeightStore> weights_;
};

// A Choice fed with times from outside: recorded ones, or simulated.
class ChoiceNode final : public ModuleNode {
 public:
  explicit ChoiceNode(std::vector<State> plans) : choice_(std::move(plans)) {}
  const char* type_key() const final { return "codl_choice"; }
  int GetPropertyMask() const final { return tvm::runtime::ModulePropertyMask::kRunnable; }

  PackedFunc GetFunction(const String& name, const ObjectPtr<Object>& self) final {
    if (name == "note") {
      return PackedFunc([self, this](TVMArgs args, TVMRetValue* rv) {
        choice_.Note(args[0], args[1], args.size() > 2 ? static_cast<double>(args[2]) : 0.0);
        *rv = choice_.plan();
      });
    }
    if (name == "adaptation") return PackedFunc([self, this](TVMArgs, TVMRetValue* rv) { *rv = Json(choice_); });
    return PackedFunc();
  }

 private:
  Choice choice_;
};

TVM_REGISTER_GLOBAL("codl.create_choice").set_body([](TVMArgs args, TVMRetValue* rv) {
  std::vector<State> states;
  for (int i = 0; i < args.size(); ++i) states.push_back(StateOf(args[i]));
  *rv = Module(make_object<ChoiceNode>(std::move(states)));
});

TVM_REGISTER_GLOBAL("codl.create_library").set_body([](TVMArgs args, TVMRetValue* rv) {
  std::string program = args[0];
  std::string about = args[1];
  const int n = args[2];
  std::vector<WeightStore::Named> weights;
  for (int i = 0; i < n; ++i) {
    std::string name = args[3 + 2 * i];
    NDArray array = args[4 + 2 * i];
    weights.emplace_back(std::move(name), std::move(array));
  }
  *rv = Module(make_object<LibraryNode>(std::move(program), std::move(about), std::move(weights)));
});

TVM_REGISTER_GLOBAL("runtime.module.loadbinary_codl_library").set_body_typed(LibraryNode::LoadFromBinary);

}  // namespace tvm_codl
