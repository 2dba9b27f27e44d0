// The plans that a library carries: one program, or several of the same network.
#ifndef TVM_CODL_COEXEC_PLANS_H_
#define TVM_CODL_COEXEC_PLANS_H_

#include <memory>
#include <string>
#include <vector>

#include "adapt.h"
#include "program.h"

namespace tvm_codl {

struct PlannedProgram {
  std::string name;
  State state = State::kCalm;
  std::shared_ptr<const Program> program;
};

// "calm", "cpu busy" or "gpu throttled".  Throws std::runtime_error for any other.
State ParseState(const std::string& name);

// Reads a program's JSON, or {"format": 2, "plans": [{"name", "state", "program"}, ...]}, the first choice first.
// Throws std::runtime_error for what Program::Parse refuses, and for plans whose inputs or outputs differ; only the
// layout of an output in memory may.
std::vector<PlannedProgram> ParsePlans(const std::string& json);

}  // namespace tvm_codl

#endif  // TVM_CODL_COEXEC_PLANS_H_
