// The server: one thread waits for clients and serves one after the other, each in a process of its own.  Two at once
// would disturb each other's measurements.
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <vector>

#include "facts.h"
#include "listener.h"
#include "log.h"
#include "options.h"
#include "session.h"

namespace {

namespace fs = std::filesystem;
using namespace codl_server;

// The exit codes of tvm_codl's command line.
constexpr int kUsageFailure = 2, kDeviceFailure = 3;
constexpr double kPause = 1.0;  // s after a session that could not start

fs::path TemporaryFolder() {
  if (const char* named = std::getenv("TMPDIR"); named != nullptr && *named != '\0') return named;
#ifdef __ANDROID__
  return "/data/local/tmp";
#else
  return "/tmp";
#endif
}

// The parent of the sessions' folders; removed at the end if the server made it.
class WorkFolder {
 public:
  explicit WorkFolder(const std::string& given) : own_(given.empty()) {
    if (!own_) {
      path_ = fs::absolute(given);
      fs::create_directories(path_);
      return;
    }
    RemoveStale(TemporaryFolder());
    std::string pattern = TemporaryFolder() / ("tvm-codl-" + std::to_string(getpid()) + "-XXXXXX");
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error(SystemError(pattern));
    path_ = pattern;
  }
  ~WorkFolder() {
    std::error_code ignored;
    if (own_) fs::remove_all(path_, ignored);
  }
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  bool own_;
  fs::path path_;
};

// Opens the listener and prints where it serves: a line of JSON on stdout, and the log.
std::unique_ptr<Listener> OpenListener(const Options& options) {
  JsonObject about = {{"key", Json(options.key)}, {"build_id", Json(BuildId())}};
  std::unique_ptr<Listener> listener;
  std::string line = "serving key=" + options.key;
  if (options.proxy) {
    listener = std::make_unique<ProxyListener>(*options.proxy, options.key);
    about["proxy"] = Json(options.proxy->text());
    line += " proxy=" + options.proxy->text();
  } else {
    Fd socket = Listen(options.host, options.port, options.port_end);
    const uint16_t port = PortOf(socket.get());
    std::optional<TrackerClient> tracker;
    if (options.tracker) tracker.emplace(*options.tracker, options.key, port, options.custom_addr);
    about["host"] = Json(options.host);
    about["port"] = Json(port);
    about["tracker"] = Json(options.tracker ? options.tracker->text() : "");
    line += " host=" + options.host + " port=" + std::to_string(port);
    if (options.tracker) line += " tracker=" + options.tracker->text();
    listener = std::make_unique<PortListener>(std::move(socket), options.key, std::move(tracker));
  }
  std::printf("%s\n", Json(about).serialize().c_str());
  std::fflush(stdout);
  Log(line);
  return listener;
}

// Serves a client; returns in words how its session ended.  A failure to start it only affects this client.
std::string ServeClient(Events* events, Listener* listener, const Client& client, const fs::path& folder,
                        const Limits& limits) {
  try {
    return RunSession(events, listener, client, folder, limits);
  } catch (const Stop&) {
    throw;
  } catch (const std::exception& error) {
    events->Wait(kPause);
    return std::string("was not served: ") + error.what();
  }
}

void Serve(const Options& options) {
  Events events(options.parent);
  const WorkFolder work(options.work_dir);
  const std::unique_ptr<Listener> listener = OpenListener(options);
  try {
    for (int count = 1;; ++count) {
      const Client client = listener->Next(&events);
      const std::string session = "session " + std::to_string(count);
      char limit[48] = "";
      if (client.limit > 0) std::snprintf(limit, sizeof(limit), ", at most %g s", client.limit);
      Log(session + " from " + client.peer + limit);
      // Other servers may use the same folder.
      const fs::path folder = work.path() / ("session-" + std::to_string(getpid()) + "-" + std::to_string(count));
      Log(session + " " + ServeClient(&events, listener.get(), client, folder, options.limits));
    }
  } catch (const Stop& stop) {
    Log(stop.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  umask(077);
  std::signal(SIGPIPE, SIG_IGN);
  try {
    const Options options = Parse(argc, argv);
    if (options.help) return std::fputs(kUsage, stdout) < 0;
    if (options.version) return std::printf("%s\n", BuildJson(options.limits).c_str()) < 0;
    SetEnvironment();
    Serve(options);
    return 0;
  } catch (const UsageError& error) {
    std::fprintf(stderr, "%s\n\n%s", error.what(), kUsage);
    return kUsageFailure;
  } catch (const std::exception& error) {
    std::printf("%s\n", Json(JsonObject{{"error", Json(std::string(error.what()))}}).serialize().c_str());
    std::fflush(stdout);
    Log(error.what());
    return kDeviceFailure;
  }
}
