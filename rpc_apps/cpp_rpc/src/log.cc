#include "log.h"

#include <cstdio>
#include <ctime>

namespace codl_server {

void Say(const std::string& text) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char clock[16];
  std::strftime(clock, sizeof(clock), "%H:%M:%S", &local);
  // One write for each line, so that lines of two processes do not mix.
  std::fprintf(stderr, "%s %s\n", clock, text.c_str());
  std::fflush(stderr);
}

}  // namespace codl_server
