#include "run_delay.h"

#include <dirent.h>
#include <fcntl.h>
#include <tvm/runtime/registry.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <string>

namespace tvm_codl {

namespace {

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
  while (const dirent* task = readdir(tasks.get())) {
    if (task->d_name[0] == '.') continue;
    const std::string path = std::string("/proc/self/task/") + task->d_name + "/schedstat";
    if (const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC); file >= 0) files_.push_back(file);
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
