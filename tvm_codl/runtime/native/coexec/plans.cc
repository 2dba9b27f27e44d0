#include "plans.h"

#include "read_json.h"

namespace tvm_codl {

namespace {

constexpr size_t kMostPlans = 16;

// Plans may lay an output out in different orders of its axes, so only inputs must have equal shapes.
void CheckSamePorts(const std::vector<Port>& first, const std::vector<Port>& other, bool shapes) {
  if (first.size() != other.size()) Fail("plans with different numbers of inputs or outputs");
  for (size_t i = 0; i < first.size(); ++i) {
    const View &a = first[i].view, &b = other[i].view;
    if (a.dtype.code != b.dtype.code || a.dtype.bits != b.dtype.bits)
      Fail("plans with different types of " + first[i].name);
    if (shapes && a.shape != b.shape) Fail("plans with different shapes of " + first[i].name);
  }
}

std::shared_ptr<const Program> ParseProgram(const picojson::value& json) {
  return std::make_shared<Program>(Program::Parse(json));
}

}  // namespace

State ParseState(const std::string& name) {
  static const std::map<std::string, State> states = {
      {"calm", State::kCalm}, {"cpu busy", State::kCpuBusy}, {"gpu throttled", State::kGpuThrottled}};
  return OneOf(states, name, "state");
}

std::vector<PlannedProgram> ParsePlans(const std::string& json) {
  picojson::value root;
  const std::string error = picojson::parse(root, json);
  if (!error.empty()) Fail("not JSON: " + error);
  if (!root.is<picojson::object>() || !root.contains("plans")) return {{"", State::kCalm, ParseProgram(root)}};
  const auto& entries = Array(root.get("plans"), "plans");
  if (entries.empty() || entries.size() > kMostPlans) Fail("none or too many plans");
  std::vector<PlannedProgram> plans;
  for (const auto& entry : entries) {
    const auto& plan = Object(entry, "a plan");
    plans.push_back({String(Field(plan, "name"), "name"), ParseState(String(Field(plan, "state"), "state")),
                     ParseProgram(Field(plan, "program"))});
    const Program& first = *plans.front().program;
    CheckSamePorts(first.inputs, plans.back().program->inputs, true);
    CheckSamePorts(first.outputs, plans.back().program->outputs, false);
  }
  return plans;
}

}  // namespace tvm_codl
