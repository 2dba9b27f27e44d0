#include "json.h"

#include <algorithm>
#include <cstdint>
#include <iomanip>
#include <sstream>

namespace tvm_codl {

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

}  // namespace tvm_codl
