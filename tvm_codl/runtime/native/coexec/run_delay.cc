#include "run_delay.h"

#include <dirent.h>
#include <fcntl.h>
#include <tvm/runtime/registry.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>

namespace tvm_codl {

namespace {

constexpr size_t kManyThreads = 256;

int64_t Read(int file) {
  std::array<char, 96> text{};
  if (file < 0 || pread(file, text.data(), text.size() - 1, 0) <= 0) return 0;
  // "time on a core, time in the run queue, slices".
  char* end = nullptr;
  std::strtoll(text.data(), &end, 10);
  return std::strtoll(end, nullptr, 10);
}

}  // namespace

int64_t RunDelay() {
  // The file names the thread that opens it, so each thread has its own.
  struct Schedstat {
    const int file = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    ~Schedstat() {
      if (file >= 0) close(file);
    }
  };
  static thread_local const Schedstat schedstat;
  return Read(schedstat.file);
}

RunDelays::RunDelays() {
  const std::unique_ptr<DIR, int (*)(DIR*)> tasks(opendir("/proc/self/task"), closedir);
  if (tasks == nullptr) return;
  // What is allocated does not depend on how many threads there are: drivers start and end theirs when they like.
  files_.reserve(kManyThreads);
  while (const dirent* task = readdir(tasks.get())) {
    std::array<char, 48> path{};
    if (task->d_name[0] == '.') continue;
    std::snprintf(path.data(), path.size(), "%.20s/schedstat", task->d_name);
    const int file = openat(dirfd(tasks.get()), path.data(), O_RDONLY | O_CLOEXEC);
    if (file >= 0) files_.push_back(file);
  }
}

RunDelays::~RunDelays() {
  for (const int file : files_) close(file);
}

int64_t RunDelays::Sum() const {
  int64_t sum = 0;
  for (const int file : files_) sum += Read(file);
  return sum;
}

// () -> milliseconds that all threads of this process have waited so far.
TVM_REGISTER_GLOBAL("codl.waited_ms").set_body_typed([] { return static_cast<double>(RunDelays().Sum()) / 1e6; });

}  // namespace tvm_codl
