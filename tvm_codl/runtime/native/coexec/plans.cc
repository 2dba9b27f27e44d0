#include "plans.h"

#include <picojson.h>

#include <stdexcept>

namespace tvm_codl {

namespace {

constexpr size_t kMostPlans = 16;

[[noreturn]] void Fail(const std::string& what) {
  throw std::runtime_error("the library's co-execution plans are damaged: " + what);
}

std::string Text(const picojson::object& object, const char* field) {
  auto it = object.find(field);
  if (it == object.end() || !it->second.is<std::string>()) Fail(std::string("no text ") + field);
  return it->second.get<std::string>();
}

// Outputs may lie in memory in another order of axes, so only inputs have one shape.
void CheckAlike(const std::vector<Port>& first, const std::vector<Port>& other, bool shapes) {
  if (first.size() != other.size()) Fail("plans with different numbers of inputs or outputs");
  for (size_t i = 0; i < first.size(); ++i) {
    const View &a = first[i].view, &b = other[i].view;
    if (a.dtype.code != b.dtype.code || a.dtype.bits != b.dtype.bits)
      Fail("plans with different types of " + first[i].name);
    if (shapes && a.shape != b.shape) Fail("plans with different shapes of " + first[i].name);
  }
}

}  // namespace

State StateOf(const std::string& name) {
  if (name == "calm") return State::kCalm;
  if (name == "cpu busy") return State::kCpuBusy;
  if (name == "gpu throttled") return State::kGpuThrottled;
  Fail("unknown state " + name);
}

std::vector<PlannedProgram> ParsePlans(const std::string& json) {
  std::vector<PlannedProgram> plans;
  picojson::value root;
  const std::string error = picojson::parse(root, json);
  const bool several = error.empty() && root.is<picojson::object>() && root.get<picojson::object>().count("plans") != 0;
  if (!several) {
    plans.push_back({"", State::kCalm, std::make_shared<Program>(Program::Parse(json))});
    return plans;
  }
  const auto& list = root.get<picojson::object>().at("plans");
  if (!list.is<picojson::array>()) Fail("plans is no list");
  const auto& entries = list.get<picojson::array>();
  if (entries.empty() || entries.size() > kMostPlans) Fail("none or too many of them");
  for (const auto& entry : entries) {
    if (!entry.is<picojson::object>()) Fail("a plan is no object");
    const auto& object = entry.get<picojson::object>();
    auto program = object.find("program");
    if (program == object.end()) Fail("a plan without a program");
    plans.push_back({Text(object, "name"), StateOf(Text(object, "state")),
                     std::make_shared<Program>(Program::Parse(program->second.serialize()))});
    const Program& first = *plans.front().program;
    CheckAlike(first.inputs, plans.back().program->inputs, true);
    CheckAlike(first.outputs, plans.back().program->outputs, false);
  }
  return plans;
}

}  // namespace tvm_codl
