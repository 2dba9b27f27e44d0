#include "session.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "log.h"
#include "opencl/affinity.h"
#include "serve_session.h"

namespace codl_server {

namespace {

namespace fs = std::filesystem;

constexpr double kCheck = 0.5;  // s between checks of a session
constexpr double kGone = 2.0;   // s that a session may outlive its client
constexpr double kReap = 5.0;   // s that a killed process may take to end; in a broken driver it never does

// Kills a session's process group and removes its folder at the end of a scope.
class SessionProcess {
 public:
  SessionProcess(pid_t pid, fs::path folder) : pid_(pid), folder_(std::move(folder)) {}
  ~SessionProcess() {
    kill(-pid_, SIGKILL);
    if (!reaped_) Reap();
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  SessionProcess(const SessionProcess&) = delete;
  SessionProcess& operator=(const SessionProcess&) = delete;
  // Whether the process has ended; then sets its status.
  bool Ended(int* status) { return reaped_ = waitpid(pid_, status, WNOHANG) == pid_; }

 private:
  void Reap() {
    kill(pid_, SIGKILL);
    for (const Clock::time_point deadline = In(kReap); SecondsUntil(deadline) > 0; usleep(10000)) {
      if (waitpid(pid_, nullptr, WNOHANG) != 0) return;
    }
    Log("process " + std::to_string(pid_) + " does not die: a driver holds it. It is left behind");
  }

  pid_t pid_;
  fs::path folder_;
  bool reaped_ = false;
};

void LimitMemory(uint64_t bytes) {
  const rlimit most{static_cast<rlim_t>(bytes), static_cast<rlim_t>(bytes)};
  if (setrlimit(RLIMIT_DATA, &most) != 0) throw std::runtime_error(SystemError("setrlimit"));
}

// If memory runs out, the kernel is to kill the session and not the server.
void PreferForOomKill() {
  if (std::FILE* file = std::fopen("/proc/self/oom_score_adj", "w")) {
    std::fputs("500", file);
    std::fclose(file);
  }
}

// The child's side of the fork.
[[noreturn]] void RunChild(Events* events, Listener* listener, int conn, const fs::path& folder, const Limits& limits,
                           pid_t server) {
  int status = 1;
  try {
    setpgid(0, 0);
    for (int number : {SIGTERM, SIGINT, SIGHUP, SIGCHLD, SIGSEGV, SIGABRT, SIGPIPE}) signal(number, SIG_DFL);
    events->Release();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != server) _exit(1);  // it ended before prctl
    listener->Close();
    PreferForOomKill();
    if (limits.memory_bytes != 0) LimitMemory(limits.memory_bytes);
    // For good: the process ends with _exit.
    [[maybe_unused]] const auto* cores =
        new tvm_codl::ScopedAffinity(tvm_codl::ParseCores(std::getenv("CODL_CPU_CORES")));
    fs::create_directories(folder);
    fs::permissions(folder, fs::perms::owner_all);
    fs::current_path(folder);
    setenv("TMPDIR", folder.c_str(), 1);
    fcntl(conn, F_SETFL, fcntl(conn, F_GETFL) & ~O_NONBLOCK);
    ServeSession(conn, folder, limits);
    status = 0;
  } catch (const std::exception& error) {
    Log(std::string("session failed: ") + error.what());
  } catch (...) {
    Log("session failed");
  }
  std::fflush(nullptr);
  // Without destructors: the order in which TVM and an OpenCL driver take themselves down is not defined.
  _exit(status);
}

std::string Describe(int status) {
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    constexpr std::pair<int, const char*> kNames[] = {{SIGKILL, "SIGKILL"}, {SIGSEGV, "SIGSEGV"}, {SIGABRT, "SIGABRT"},
                                                      {SIGBUS, "SIGBUS"},   {SIGILL, "SIGILL"},   {SIGFPE, "SIGFPE"},
                                                      {SIGTERM, "SIGTERM"}, {SIGTRAP, "SIGTRAP"}};
    for (const auto& [signal, name] : kNames) {
      if (signal == number) return std::string("crashed: ") + name;
    }
    return "crashed: signal " + std::to_string(number);
  }
  const int code = WEXITSTATUS(status);
  return code == 0 ? "ended" : "failed with exit code " + std::to_string(code);
}

}  // namespace

std::string RunSession(Events* events, Listener* listener, const Client& client, const fs::path& folder,
                       const Limits& limits) {
  KeepAlive(client.conn.get());
  // An earlier one that did not die when it was killed may have died since.
  while (waitpid(-1, nullptr, WNOHANG) > 0) continue;
  std::fflush(nullptr);
  const pid_t server = getpid();
  const pid_t pid = fork();  // the server has one thread
  if (pid < 0) throw std::runtime_error(SystemError("fork"));
  if (pid == 0) RunChild(events, listener, client.conn.get(), folder, limits, server);
  setpgid(pid, pid);
  SessionProcess session(pid, folder);
  const double limit = client.limit == 0       ? limits.session_s
                       : limits.session_s == 0 ? client.limit
                                               : std::min(client.limit, limits.session_s);
  const Clock::time_point deadline = limit == 0 ? Clock::time_point::max() : In(std::min(limit, 1e9));
  Clock::time_point gone = Clock::time_point::max();
  std::string killed;
  int status = 0;
  while (!session.Ended(&status)) {
    const Clock::time_point now = Clock::now();
    pollfd left{client.conn.get(), POLLRDHUP, 0};
    if (gone == Clock::time_point::max() && poll(&left, 1, 0) > 0) gone = In(kGone);
    if (now > deadline || now > gone) {
      killed = now > deadline ? "was killed at its time limit" : "was killed: its client had gone";
      kill(pid, SIGKILL);
      // A process that does not die holds the connection open.
      shutdown(client.conn.get(), SHUT_RDWR);
      break;
    }
    // A child's end cuts the wait short.
    const double until = deadline == Clock::time_point::max() ? kCheck : SecondsUntil(deadline);
    events->Wait(std::max(0.01, std::min(kCheck, until)));
  }
  return killed.empty() ? Describe(status) : killed;
}

void RemoveStale(const fs::path& parent) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(parent, error)) {
    constexpr std::string_view kPrefix = "tvm-codl-";
    const std::string name = entry.path().filename();
    if (name.compare(0, kPrefix.size(), kPrefix) != 0) continue;
    const std::string owner = name.substr(kPrefix.size(), name.find('-', kPrefix.size()) - kPrefix.size());
    const bool number = !owner.empty() && owner.size() < 10 && owner.find_first_not_of("0123456789") == owner.npos;
    struct stat about{};
    if (number && lstat(entry.path().c_str(), &about) == 0 && S_ISDIR(about.st_mode) && about.st_uid == getuid() &&
        !fs::exists("/proc/" + owner, error)) {
      fs::remove_all(entry.path(), error);
    }
  }
}

}  // namespace codl_server
