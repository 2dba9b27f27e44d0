// The server's log, on stderr.
#ifndef TVM_CODL_SERVER_LOG_H_
#define TVM_CODL_SERVER_LOG_H_

#include <cstdio>
#include <ctime>
#include <string>

namespace codl_server {

inline void Log(const std::string& text) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char clock[16];
  std::strftime(clock, sizeof(clock), "%H:%M:%S", &local);
  // One write for each line, so that lines of two processes do not mix.
  std::fprintf(stderr, "%s %s\n", clock, text.c_str());
}

}  // namespace codl_server

#endif  // TVM_CODL_SERVER_LOG_H_
