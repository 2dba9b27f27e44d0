// The server process: it waits for clients with one thread and serves each in a process of its own, one after the other
// as a phone does: two at once would measure each other.
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <vector>

#include "about.h"
#include "environment.h"
#include "front.h"
#include "json.h"
#include "log.h"
#include "options.h"
#include "serve_session.h"
#include "session.h"

namespace {

namespace fs = std::filesystem;
using namespace codl_server;

// The exit codes of tvm_codl's command line.
constexpr int kUsageFailure = 2, kDeviceFailure = 3;
constexpr double kRest = 1.0;  // s after a session that could not be begun

fs::path Temporary() {
  if (const char* named = std::getenv("TMPDIR"); named != nullptr && *named != '\0') return named;
#ifdef __ANDROID__
  return "/data/local/tmp";
#else
  return "/tmp";
#endif
}

// The folder of the sessions' folders; removed with the server where it made it.
class WorkFolder {
 public:
  explicit WorkFolder(const std::string& named) : mine_(named.empty()) {
    if (!mine_) {
      path_ = fs::absolute(named);
      fs::create_directories(path_);
      return;
    }
    RemoveStale(Temporary());
    std::string pattern = Temporary() / ("tvm-codl-" + std::to_string(getpid()) + "-XXXXXX");
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error(SystemError(pattern));
    path_ = pattern;
  }
  ~WorkFolder() {
    std::error_code ignored;
    if (mine_) fs::remove_all(path_, ignored);
  }
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  bool mine_;
  fs::path path_;
};

std::unique_ptr<Front> OpenFront(const Options& options) {
  JsonObject about;
  about.Add("key", options.key).Add("build_id", BuildId());
  std::unique_ptr<Front> front;
  std::string words = "serving key=" + options.key;
  if (options.proxy) {
    front = std::make_unique<Proxied>(*options.proxy, options.key);
    about.Add("proxy", options.proxy->text());
    words += " proxy=" + options.proxy->text();
  } else {
    Fd listener = Listen(options.host, options.port, options.port_end);
    const uint16_t port = PortOf(listener.get());
    std::optional<TrackerLink> tracker;
    if (options.tracker) tracker.emplace(*options.tracker, options.key, port, options.custom_addr);
    about.Add("host", options.host).Add("port", static_cast<int>(port));
    about.Add("tracker", options.tracker ? options.tracker->text() : "");
    words += " host=" + options.host + " port=" + std::to_string(port);
    if (options.tracker) words += " tracker=" + options.tracker->text();
    front = std::make_unique<Listening>(std::move(listener), options.key, std::move(tracker));
  }
  std::printf("%s\n", about.text().c_str());
  std::fflush(stdout);
  Say(words);
  return front;
}

// How a session went.  One that could not be begun, for want of memory or processes, costs that client only.
std::string Outcome(Events* events, Front* front, const Client& client, const fs::path& folder, const Limits& limits) {
  try {
    return RunSession(events, front, client, folder, limits, ServeSession);
  } catch (const Stop&) {
    throw;
  } catch (const std::exception& error) {
    std::vector<pollfd> none;
    events->Wait(&none, kRest);
    return std::string("was not served: ") + error.what();
  }
}

void Serve(const Options& options) {
  Events events(options.parent);
  const WorkFolder work(options.work_dir);
  const std::unique_ptr<Front> front = OpenFront(options);
  try {
    for (int count = 1;; ++count) {
      const Client client = front->Next(&events);
      const std::string session = "session " + std::to_string(count);
      char limit[48] = "";
      if (client.limit > 0) std::snprintf(limit, sizeof(limit), ", at most %g s", client.limit);
      Say(session + " from " + client.peer + limit);
      // Another server may have left some in the same folder.
      const fs::path folder = work.path() / ("session-" + std::to_string(getpid()) + "-" + std::to_string(count));
      Say(session + " " + Outcome(&events, front.get(), client, folder, options.limits));
    }
  } catch (const Stop& stop) {
    Say(stop.what());
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
    std::printf("%s\n", JsonObject().Add("error", error.what()).text().c_str());
    std::fflush(stdout);
    Say(error.what());
    return kDeviceFailure;
  }
}
