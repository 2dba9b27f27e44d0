// What the runtime tells its clients, as JSON text.
#ifndef TVM_CODL_COEXEC_JSON_H_
#define TVM_CODL_COEXEC_JSON_H_

#include <string>
#include <vector>

#include "program.h"
#include "timeline.h"

namespace tvm_codl {

std::string Escape(const std::string& text);
std::string Json(const std::vector<double>& numbers);
// A timeline: a list of events, in microseconds from the first one's start.
std::string Json(const Program& program, const std::vector<Span>& spans);

}  // namespace tvm_codl

#endif  // TVM_CODL_COEXEC_JSON_H_
