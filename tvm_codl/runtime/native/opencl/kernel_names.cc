#include "kernel_names.h"

#include <cctype>
#include <map>
#include <mutex>
#include <sstream>

namespace tvm_codl {

namespace {

std::mutex mutex;

// By program.  Never destroyed: programs are released by destructors that run at exit.
std::map<cl_program, std::string>& OldNames() {
  static auto* names = new std::map<cl_program, std::string>();
  return *names;
}

constexpr char kCommonName[] = "codl_kernel";
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

bool InName(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

}  // namespace

std::string UseCommonName(std::string* source) {
  const std::string text = DropDeclarations(*source);
  const size_t kernel = text.find(kKernel);
  if (kernel == std::string::npos || text.find(kKernel, kernel + 1) != std::string::npos) return "";
  const size_t begin = kernel + sizeof(kKernel) - 1;
  size_t end = begin;
  while (end < text.size() && InName(text[end])) ++end;
  const std::string name = text.substr(begin, end - begin);
  if (name.empty()) return "";
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
  return name;
}

void AddOldName(cl_program program, std::string name) {
  std::lock_guard<std::mutex> lock(mutex);
  OldNames()[program] = std::move(name);
}

void RemoveOldName(cl_program program) {
  std::lock_guard<std::mutex> lock(mutex);
  OldNames().erase(program);
}

const char* NameIn(cl_program program, const char* name) {
  std::lock_guard<std::mutex> lock(mutex);
  const auto it = OldNames().find(program);
  return it != OldNames().end() && it->second == name ? kCommonName : name;
}

}  // namespace tvm_codl
