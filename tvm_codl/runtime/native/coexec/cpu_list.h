// The CPU's steps, ready to run: functions looked up, argument arrays laid out.
#ifndef TVM_CODL_COEXEC_CPU_LIST_H_
#define TVM_CODL_COEXEC_CPU_LIST_H_

#include <tvm/runtime/module.h>
#include <tvm/runtime/packed_func.h>

#include <deque>
#include <memory>
#include <vector>

#include "memory.h"
#include "program.h"

namespace tvm_codl {

// A call of a TVM function with arguments that never change.  Arguments that stand where TVM's code may not read them
// (it assumes an alignment) go through a copy of their own; `copied_bytes` counts that.
class PreparedCall {
 public:
  PreparedCall(tvm::runtime::PackedFunc function, const Step& step, const Memory& memory);
  PreparedCall(const PreparedCall&) = delete;
  PreparedCall& operator=(const PreparedCall&) = delete;

  void Run() const;
  int64_t copied_bytes() const { return copied_bytes_; }

 private:
  struct Bounce {
    uint8_t* home;
    uint8_t* copy;
    size_t bytes;
  };
  tvm::runtime::PackedFunc function_;
  std::deque<std::vector<int64_t>> shapes_;
  std::deque<DLTensor> tensors_;
  std::vector<TVMValue> values_;
  std::vector<int> codes_;
  std::vector<HostBytes> copies_;
  std::vector<Bounce> before_;
  std::vector<Bounce> after_;
  int64_t copied_bytes_ = 0;
};

// The TVM function of that name in any of the imported libraries.  Throws where there is none.
tvm::runtime::PackedFunc FindFunction(const std::vector<tvm::runtime::Module>& libraries, const std::string& name);

}  // namespace tvm_codl

#endif  // TVM_CODL_COEXEC_CPU_LIST_H_
