// The co-executor's library as a TVM module.
//
//   codl.create_library(program, about, n, name1, array1, ...) -> the library's root module, at build time
//   library["create"](device_id, sharing) -> an executor (alternatives.h)
//   codl.create_choice(state1, state2, ...) -> a Choice by itself: note(ms, cpu_ms) -> the next run's plan;
//   adaptation()
#include <dmlc/memory_io.h>
#include <tvm/runtime/module.h>
#include <tvm/runtime/packed_func.h>
#include <tvm/runtime/registry.h>

#include <memory>

#include "alternatives.h"
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

class LibraryNode final : public ModuleNode {
 public:
  LibraryNode(std::string program, std::string about, std::vector<WeightStore::Named> weights)
      : json_(std::move(program)),
        about_(std::move(about)),
        plans_(ParsePlans(json_)),
        weights_(std::make_shared<WeightStore>(std::move(weights))) {}
  int GetPropertyMask() const final {
    return tvm::runtime::ModulePropertyMask::kBinarySerializable | tvm::runtime::ModulePropertyMask::kRunnable;
  }
  TVM_MODULE_VTABLE_BEGIN("codl_library")
  TVM_MODULE_VTABLE_ENTRY("create", &LibraryNode::Create)
  TVM_MODULE_VTABLE_ENTRY("program", &LibraryNode::ProgramJson)
  TVM_MODULE_VTABLE_ENTRY("about", &LibraryNode::About)
  TVM_MODULE_VTABLE_END()

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
  Module Create(int device_id, std::string sharing) {
    return Module(make_object<Alternatives>(plans_, weights_, imports(), device_id, sharing));
  }
  std::string ProgramJson() const { return json_; }
  std::string About() const { return about_; }

  std::string json_;
  std::string about_;
  std::vector<PlannedProgram> plans_;
  std::shared_ptr<WeightStore> weights_;
};

// A Choice fed with recorded or simulated times.
class ChoiceNode final : public ModuleNode {
 public:
  explicit ChoiceNode(std::vector<State> plans) : choice_(std::move(plans)) {}
  int GetPropertyMask() const final { return tvm::runtime::ModulePropertyMask::kRunnable; }
  TVM_MODULE_VTABLE_BEGIN("codl_choice")
  TVM_MODULE_VTABLE_ENTRY_PACKED("note", &ChoiceNode::Note)
  TVM_MODULE_VTABLE_ENTRY("adaptation", &ChoiceNode::Adaptation)
  TVM_MODULE_VTABLE_END()

 private:
  // (ms, cpu_ms[, delay_ms])
  void Note(TVMArgs args, TVMRetValue* rv) {
    choice_.Note(args[0], args[1], args.size() > 2 ? static_cast<double>(args[2]) : 0.0);
    *rv = choice_.plan();
  }
  std::string Adaptation() const { return ToJson(choice_); }

  Choice choice_;
};

}  // namespace

TVM_REGISTER_GLOBAL("codl.create_choice").set_body([](TVMArgs args, TVMRetValue* rv) {
  std::vector<State> states;
  for (int i = 0; i < args.size(); ++i) states.push_back(ParseState(args[i]));
  *rv = Module(make_object<ChoiceNode>(std::move(states)));
});

TVM_REGISTER_GLOBAL("codl.create_library").set_body([](TVMArgs args, TVMRetValue* rv) {
  std::string program = args[0];
  std::string about = args[1];
  const int n = args[2];
  std::vector<WeightStore::Named> weights;
  for (int i = 0; i < n; ++i) weights.emplace_back(args[3 + 2 * i].operator std::string(), args[4 + 2 * i]);
  *rv = Module(make_object<LibraryNode>(std::move(program), std::move(about), std::move(weights)));
});

TVM_REGISTER_GLOBAL("runtime.module.loadbinary_codl_library").set_body_typed(LibraryNode::LoadFromBinary);

}  // namespace tvm_codl
