#include "affinity.h"

#include <cstdlib>

namespace tvm_codl {

std::optional<cpu_set_t> ParseCores(const char* cores) {
  if (cores == nullptr || *cores == '\0') return std::nullopt;
  cpu_set_t wanted;
  CPU_ZERO(&wanted);
  for (const char* at = cores; *at != '\0';) {
    char* end = nullptr;
    const long core = std::strtol(at, &end, 10);
    if (end == at || core < 0 || core >= CPU_SETSIZE) return std::nullopt;
    CPU_SET(static_cast<size_t>(core), &wanted);
    at = *end == ',' ? end + 1 : end;
    if (*end != ',' && *end != '\0') return std::nullopt;
  }
  return wanted;
}

ScopedAffinity::ScopedAffinity(const char* cores) {
  if (const auto wanted = ParseCores(cores)) Change(*wanted);
}

ScopedAffinity::ScopedAffinity(const cpu_set_t* cores) {
  if (cores != nullptr) Change(*cores);
}

void ScopedAffinity::Change(const cpu_set_t& wanted) {
  if (sched_getaffinity(0, sizeof(before_), &before_) != 0) return;
  changed_ = sched_setaffinity(0, sizeof(wanted), &wanted) == 0;
}

ScopedAffinity::~ScopedAffinity() {
  if (changed_) sched_setaffinity(0, sizeof(before_), &before_);
}

}  // namespace tvm_codl
