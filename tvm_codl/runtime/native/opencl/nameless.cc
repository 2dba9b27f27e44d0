#include "nameless.h"

#include <algorithm>
#include <cctype>

namespace tvm_codl {

namespace {

constexpr char kCommonName[] = "codl_kernel";

// TVM declares every kernel of the network ahead of each one.  A program with one kernel needs no declarations.
std::string WithoutDeclarations(const std::string& source, const std::string& start) {
  std::string result;
  for (size_t at = 0; at < source.size();) {
    const size_t stop = std::min(source.find('\n', at), source.size() - 1) + 1;
    const size_t last = source.find_last_not_of(" \r\n", stop - 1);
    const bool declaration =
        source.compare(at, start.size(), start) == 0 && last != std::string::npos && last >= at && source[last] == ';';
    if (!declaration) result.append(source, at, stop - at);
    at = stop;
  }
  return result;
}

bool InName(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

}  // namespace

std::string MakeNameless(std::string* source) {
  static const std::string kStart = "__kernel void ";
  std::string text = WithoutDeclarations(*source, kStart);
  const size_t start = text.find(kStart);
  if (start == std::string::npos || text.find(kStart, start + 1) != std::string::npos) return "";
  const size_t begin = start + kStart.size();
  size_t end = begin;
  while (end < text.size() && InName(text[end])) ++end;
  const std::string name = text.substr(begin, end - begin);
  if (name.empty()) return "";
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const size_t found = text.find(name, at);
    const size_t stop = found == std::string::npos ? text.size() : found;
    result.append(text, at, stop - at);
    if (found == std::string::npos) break;
    const bool whole = (found == 0 || !InName(text[found - 1])) &&
                       (found + name.size() == text.size() || !InName(text[found + name.size()]));
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
