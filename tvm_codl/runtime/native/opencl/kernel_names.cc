#include "kernel_names.h"

#include <cctype>
#include <sstream>

namespace tvm_codl {

namespace {

constexpr char kKernel[] = "__kernel void ";

// TVM declares every kernel of the network ahead of each one.  A program with one kernel needs no declarations.
std::string DropDeclarations(const std::string& source) {
  std::string result;
  std::istringstream lines(source);
  for (std::string line; std::getline(lines, line);) {
    const size_t last = line.find_last_not_of(" \r");
    const bool declaration = line.rfind(kKernel, 0) == 0 && line[last] == ';';
    if (!declaration) result += line + "\n";
  }
  return result;
}

}  // namespace

bool InName(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

bool UseCommonName(std::string* source) {
  const std::string text = DropDeclarations(*source);
  const size_t kernel = text.find(kKernel);
  if (kernel == std::string::npos || text.find(kKernel, kernel + 1) != std::string::npos) return false;
  const size_t begin = kernel + sizeof(kKernel) - 1;
  size_t end = begin;
  while (end < text.size() && InName(text[end])) ++end;
  const std::string name = text.substr(begin, end - begin);
  if (name.empty()) return false;
  std::string result;
  size_t copied = 0;
  for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + name.size())) {
    const size_t after = at + name.size();
    if ((at > 0 && InName(text[at - 1])) || (after < text.size() && InName(text[after])))
      continue;  // part of another name
    result.append(text, copied, at - copied).append(kCommonName);
    copied = after;
  }
  *source = result.append(text, copied, std::string::npos);
  return true;
}

}  // namespace tvm_codl
