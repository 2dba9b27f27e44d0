#include "affinity.h"

#include <cstdlib>

namespace tvm_codl {

cpu_set_t ParseCores(const char* text) {
  cpu_set_t cores = ToCpuSet({});
  while (text != nullptr && *text != '\0') {
    char* end = nullptr;
    const long first = std::strtol(text, &end, 10);
    bool number = end != text;
    long last = first;
    if (number && *end == '-') {
      text = end + 1;
      last = std::strtol(text, &end, 10);
      number = end != text;
    }
    if (!number || first < 0 || last >= CPU_SETSIZE || (*end != ',' && *end != '\0')) return ToCpuSet({});
    for (long core = first; core <= last; ++core) CPU_SET(static_cast<size_t>(core), &cores);
    text = *end == ',' ? end + 1 : end;
  }
  return cores;
}

cpu_set_t ToCpuSet(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(static_cast<size_t>(core), &set);
  return set;
}

std::vector<int> ToCores(const cpu_set_t& set) {
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(static_cast<size_t>(core), &set)) cores.push_back(core);
  }
  return cores;
}

cpu_set_t AllowedCores() {
  cpu_set_t allowed = ToCpuSet({});
  sched_getaffinity(0, sizeof(allowed), &allowed);
  return allowed;
}

ScopedAffinity::ScopedAffinity(const cpu_set_t& cores) {
  if (CPU_COUNT(&cores) == 0 || sched_getaffinity(0, sizeof(before_), &before_) != 0) return;
  changed_ = sched_setaffinity(0, sizeof(cores), &cores) == 0;
}

ScopedAffinity::~ScopedAffinity() {
  if (changed_) sched_setaffinity(0, sizeof(before_), &before_);
}

}  // namespace tvm_codl
