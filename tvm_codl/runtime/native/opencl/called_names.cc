#include "called_names.h"

#include <set>

#include "kernel_names.h"

namespace tvm_codl {

std::string CallOptions(const std::string& source) {
  std::set<std::string> called;
  for (size_t open = source.find('('); open != std::string::npos; open = source.find('(', open + 1)) {
    size_t end = open;
    while (end > 0 && source[end - 1] == ' ') --end;
    size_t begin = end;
    while (begin > 0 && InName(source[begin - 1])) --begin;
    if (begin < end) called.insert(source.substr(begin, end - begin));
  }
  std::string options = "-DCODL_CALLS";
  for (const std::string& name : called) options += " -DCODL_CALLS_" + name;
  return options;
}

}  // namespace tvm_codl
