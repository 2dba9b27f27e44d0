#include "cpu_list.h"

#include <cstring>

namespace tvm_codl {

using tvm::runtime::Module;
using tvm::runtime::PackedFunc;
using tvm::runtime::TVMArgs;
using tvm::runtime::TVMRetValue;

PreparedCall::PreparedCall(PackedFunc function, const Step& step, const Memory& memory)
    : function_(std::move(function)) {
  const size_t first_output = step.args.size() - static_cast<size_t>(step.outputs);
  for (size_t i = 0; i < step.args.size(); ++i) {
    const View& view = step.args[i];
    uint8_t* data = memory.Host(view);
    if (!memory.HostAligned(view)) {
      copies_.push_back(AlignedBytes(static_cast<size_t>(view.bytes)));
      const Bounce bounce{data, copies_.back().get(), static_cast<size_t>(view.bytes)};
      (i < first_output ? before_ : after_).push_back(bounce);
      copied_bytes_ += view.bytes;
      data = copies_.back().get();
    }
    shapes_.push_back(view.shape);
    DLTensor tensor{};
    tensor.data = data;
    tensor.device = DLDevice{kDLCPU, 0};
    tensor.ndim = static_cast<int>(view.shape.size());
    tensor.dtype = view.dtype;
    tensor.shape = shapes_.back().data();
    tensors_.push_back(tensor);
    TVMValue value;
    value.v_handle = &tensors_.back();
    values_.push_back(value);
    codes_.push_back(kTVMDLTensorHandle);
  }
}

void PreparedCall::Run() const {
  for (const Bounce& bounce : before_) std::memcpy(bounce.copy, bounce.home, bounce.bytes);
  TVMRetValue result;
  function_.CallPacked(TVMArgs(values_.data(), codes_.data(), static_cast<int>(values_.size())), &result);
  for (const Bounce& bounce : after_) std::memcpy(bounce.home, bounce.copy, bounce.bytes);
}

PackedFunc FindFunction(const std::vector<Module>& libraries, const std::string& name) {
  for (Module library : libraries) {
    if (PackedFunc found = library.GetFunction(name, true); found != nullptr) return found;
  }
  throw std::runtime_error("the library lacks the function " + name);
}

}  // namespace tvm_codl
