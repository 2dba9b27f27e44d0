// The co-executor as TVM modules, so that all of it works over RPC.
//
//   codl.create_library(program, plan, n, name1, array1, ...) -> the library's root module, at build time
//   library["create"](device_id, sharing) -> an executor:
//     set_input(i, array)  get_output(i, array)  run()  benchmark(number, repeat)  time_region(i, repeat, min_ms)
//     time_region_busy(i, other, repeat, min_ms)  timeline()  copied_bytes()  sharing()  spin_us(n)
//   Lists come back as JSON text, which every RPC client can read.
#include <dmlc/memory_io.h>
#include <tvm/runtime/module.h>
#include <tvm/runtime/packed_func.h>
#include <tvm/runtime/registry.h>

#include <iomanip>
#include <memory>
#include <sstream>

#include "executor.h"

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

std::string Json(const std::vector<double>& numbers) {
  std::ostringstream out;
  out << '[' << std::setprecision(9);
  for (size_t i = 0; i < numbers.size(); ++i) out << (i != 0 ? "," : "") << numbers[i];
  out << ']';
  return out.str();
}

std::string Escape(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) out += c;
  }
  return out;
}

std::string Json(const Program& program, const std::vector<Span>& spans) {
  int64_t origin = INT64_MAX;
  for (const Span& span : spans) origin = std::min(origin, span.start);
  std::ostringstream out;
  out << '[' << std::fixed << std::setprecision(3);
  for (size_t i = 0; i < spans.size(); ++i) {
    const Span& span = spans[i];
    const auto& steps = span.gpu ? program.gpu : program.cpu;
    const auto step = static_cast<size_t>(span.step);
    // To a reader, feeding and signalling are ways of sharing; the name says which.
    static constexpr const char* kNames[] = {"kernel", "wait", "share", "feed", "signal"};
    static constexpr const char* kKinds[] = {"kernel", "wait", "share", "share", "share"};
    std::string name = step < steps.size() ? steps[step].function : "";
    if (name.empty()) name = kNames[static_cast<int>(span.kind)];
    out << (i != 0 ? "," : "") << "{\"name\":\"" << Escape(name) << "\",\"processor\":\"" << (span.gpu ? "gpu" : "cpu")
        << "\",\"kind\":\"" << kKinds[static_cast<int>(span.kind)] << "\",\"region\":\""
        << (span.region >= 0 ? Escape(program.regions[static_cast<size_t>(span.region)].name) : "")
        << "\",\"start_us\":" << static_cast<double>(span.start - origin) / 1e3
        << ",\"end_us\":" << static_cast<double>(span.end - origin) / 1e3 << '}';
  }
  out << ']';
  return out.str();
}

}  // namespace

class ExecutorNode final : public ModuleNode {
 public:
  explicit ExecutorNode(std::unique_ptr<Executor> executor) : executor_(std::move(executor)) {}
  const char* type_key() const final { return "codl_executor"; }
  int GetPropertyMask() const final { return tvm::runtime::ModulePropertyMask::kRunnable; }

  PackedFunc GetFunction(const String& name, const ObjectPtr<Object>& self) final {
    Executor* run = executor_.get();
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
      return PackedFunc(
          [self, run](TVMArgs args, TVMRetValue* rv) { *rv = Json(run->TimeRegion(args[0], args[1], args[2])); });
    }
    if (name == "time_region_busy") {
      return PackedFunc([self, run](TVMArgs args, TVMRetValue* rv) {
        *rv = Json(run->TimeRegionBusy(args[0], args[1], args[2], args[3]));
      });
    }
    if (name == "timeline") {
      return PackedFunc([self, run](TVMArgs, TVMRetValue* rv) { *rv = Json(run->program(), run->Timeline()); });
    }
    if (name == "copied_bytes") return PackedFunc([self, run](TVMArgs, TVMRetValue* rv) { *rv = run->copied_bytes(); });
    if (name == "sharing") {
      return PackedFunc([self, run](TVMArgs, TVMRetValue* rv) { *rv = std::string(SharingName(run->sharing())); });
    }
    if (name == "spin_us") return PackedFunc([self, run](TVMArgs args, TVMRetValue*) { run->spin_us = args[0]; });
    return PackedFunc();
  }

 private:
  std::unique_ptr<Executor> executor_;
};

class LibraryNode final : public ModuleNode {
 public:
  LibraryNode(std::string program, std::string about, Weights weights)
      : json_(std::move(program)),
        about_(std::move(about)),
        program_(std::make_shared<Program>(Program::Parse(json_))),
        weights_(std::move(weights)) {}
  const char* type_key() const final { return "codl_library"; }
  int GetPropertyMask() const final {
    return tvm::runtime::ModulePropertyMask::kBinarySerializable | tvm::runtime::ModulePropertyMask::kRunnable;
  }

  PackedFunc GetFunction(const String& name, const ObjectPtr<Object>& self) final {
    if (name == "create") {
      return PackedFunc([self, this](TVMArgs args, TVMRetValue* rv) {
        auto executor = std::make_unique<Executor>(program_, weights_, imports(), args[0], args[1]);
        *rv = Module(make_object<ExecutorNode>(std::move(executor)));
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
    stream->Write(static_cast<uint64_t>(weights_.size()));
    for (const auto& [name, array] : weights_) {
      stream->Write(name);
      array.Save(stream);
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
    Weights weights;
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
  std::shared_ptr<const Program> program_;
  Weights weights_;
};

TVM_REGISTER_GLOBAL("codl.create_library").set_body([](TVMArgs args, TVMRetValue* rv) {
  std::string program = args[0];
  std::string about = args[1];
  const int n = args[2];
  Weights weights;
  for (int i = 0; i < n; ++i) {
    std::string name = args[3 + 2 * i];
    NDArray array = args[4 + 2 * i];
    weights.emplace_back(std::move(name), std::move(array));
  }
  *rv = Module(make_object<LibraryNode>(std::move(program), std::move(about), std::move(weights)));
});

TVM_REGISTER_GLOBAL("runtime.module.loadbinary_codl_library").set_body_typed(LibraryNode::LoadFromBinary);

}  // namespace tvm_codl
