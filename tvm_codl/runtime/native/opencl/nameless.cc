#include "nameless.h"

#include <cctype>

namespace tvm_codl {

namespace {

constexpr char kCommonName[] = "codl_kernel";

bool InName(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

}  // namespace

std::string MakeNameless(std::string* source) {
  static const std::string kStart = "__kernel void ";
  const size_t start = source->find(kStart);
  if (start == std::string::npos || source->find(kStart, start + 1) != std::string::npos) return "";
  const size_t begin = start + kStart.size();
  size_t end = begin;
  while (end < source->size() && InName((*source)[end])) ++end;
  const std::string name = source->substr(begin, end - begin);
  if (name.empty()) return "";
  std::string result;
  for (size_t at = 0; at < source->size();) {
    const size_t found = source->find(name, at);
    const size_t stop = found == std::string::npos ? source->size() : found;
    result.append(*source, at, stop - at);
    if (found == std::string::npos) break;
    const bool whole = (found == 0 || !InName((*source)[found - 1])) &&
                       (found + name.size() == source->size() || !InName((*source)[found + name.size()]));
    result += whole ? kCommonName : name;
    at = found + name.size();
  }
  *source = std::move(result);
  return name;
}

Nameless& Nameless::Global() {
  // Never destroyed: programs are released by destructors that run at exit.
  static auto* nameless = new Nameless();
  return *nameless;
}

void Nameless::Add(cl_program program, std::string name) {
  std::lock_guard<std::mutex> lock(mutex_);
  names_[program] = std::move(name);
}

void Nameless::Remove(cl_program program) {
  std::lock_guard<std::mutex> lock(mutex_);
  names_.erase(program);
}

const char* Nameless::NameIn(cl_program program, const char* name) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto it = names_.find(program);
  return it != names_.end() && it->second == name ? kCommonName : name;
}

}  // namespace tvm_codl
