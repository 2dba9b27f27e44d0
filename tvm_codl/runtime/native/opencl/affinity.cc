#include "affinity.h"

#include <cstdlib>

namespace tvm_codl {

std::vector<int> ParseCores(const std::string& text) {
  std::vector<int> cores;
  for (const char* at = text.c_str(); *at != '\0';) {
    char* end = nullptr;
    const long first = std::strtol(at, &end, 10);
    if (end == at) return {};
    long last = first;
    if (*end == '-') {
      at = end + 1;
      last = std::strtol(at, &end, 10);
      if (end == at) return {};
    }
    if (first < 0 || last >= CPU_SETSIZE || (*end != ',' && *end != '\0')) return {};
    for (long core = first; core <= last; ++core) cores.push_back(static_cast<int>(core));
    at = *end == ',' ? end + 1 : end;
  }
  return cores;
}

std::vector<int> CoresFromEnvironment(const char* variable) {
  const char* text = std::getenv(variable);
  return ParseCores(text == nullptr ? "" : text);
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

std::vector<int> AllowedCores() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return {};
  return ToCores(allowed);
}

ScopedAffinity::ScopedAffinity(const std::vector<int>& cores) {
  if (!cores.empty()) Change(ToCpuSet(cores));
}

ScopedAffinity::ScopedAffinity(const cpu_set_t* cores) {
  if (cores != nullptr) Change(*cores);
}

void ScopedAffinity::Change(const cpu_set_t& cores) {
  if (sched_getaffinity(0, sizeof(before_), &before_) != 0) return;
  changed_ = sched_setaffinity(0, sizeof(cores), &cores) == 0;
}

ScopedAffinity::~ScopedAffinity() {
  if (changed_) sched_setaffinity(0, sizeof(before_), &before_);
}

}  // namespace tvm_codl
