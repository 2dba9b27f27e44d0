// The CPU's facts: cpufreq, cpu_capacity and cache of /sys/devices/system/cpu, and /proc/cpuinfo.
#include <dirent.h>
#include <sched.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <regex>
#include <set>
#include <tuple>

#include "facts.h"
#include "json.h"
#ifdef __aarch64__
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace codl_server {

namespace {

const std::string kSystem = "/sys/devices/system/cpu";
// /proc/cpuinfo tells the clock of this moment, which wanders; a profile must stay equal from day to day.
constexpr double kClockStepMhz = 50;

using Lines = std::map<std::string, std::string>;

std::string Stripped(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\n");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \t\n") - begin + 1);
}

std::string Read(const std::string& path) {
  std::ifstream file(path);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return Stripped(text);
}

bool IsNumber(const std::string& text) {
  return !text.empty() && text.size() <= 18 && text.find_first_not_of("0123456789") == std::string::npos;
}

uint64_t NumberAt(const std::string& path) {
  const std::string text = Read(path);
  return IsNumber(text) ? std::stoull(text) : 0;
}

// The names in a folder that are `prefix` and a number, as numbers.
std::vector<int> Numbered(const std::string& folder, const std::string& prefix) {
  std::vector<int> found;
  const auto close = [](DIR* dir) { closedir(dir); };
  const std::unique_ptr<DIR, decltype(close)> open(opendir(folder.c_str()), close);
  while (const dirent* entry = open ? readdir(open.get()) : nullptr) {
    const std::string name = entry->d_name;
    if (name.compare(0, prefix.size(), prefix) != 0 || !IsNumber(name.substr(prefix.size()))) continue;
    found.push_back(std::stoi(name.substr(prefix.size())));
  }
  std::sort(found.begin(), found.end());
  return found;
}

// The lines of each core's block of /proc/cpuinfo.
std::map<int, Lines> CpuInfo() {
  std::map<int, Lines> found;
  Lines* facts = nullptr;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string name = Stripped(line.substr(0, colon)), value = Stripped(line.substr(colon + 1));
    if (name == "processor" && IsNumber(value)) {
      facts = &found[std::stoi(value)];
    } else if (facts != nullptr) {
      (*facts)[name] = value;
    }
  }
  return found;
}

std::string Of(const Lines& facts, const std::string& name) {
  const auto it = facts.find(name);
  return it == facts.end() ? "" : it->second;
}

// MHz: the one in the name (`... @ 2.60GHz`), else that of the moment, rounded.
int Clock(const Lines& facts) {
  static const std::regex kInName("@ *([0-9]+(?:\\.[0-9]+)?) *GHz"), kMoment("[0-9]+(?:\\.[0-9]+)?");
  std::smatch match;
  const std::string name = Of(facts, "model name"), moment = Of(facts, "cpu MHz");
  if (std::regex_search(name, match, kInName)) return static_cast<int>(std::lround(std::stod(match[1]) * 1000));
  if (!std::regex_match(moment, kMoment)) return 0;
  return static_cast<int>(std::nearbyint(std::stod(moment) / kClockStepMhz) * kClockStepMhz);
}

// Capacity, clock and design, in this order the slowest first; and the cores that share them.
using Clusters = std::map<std::tuple<uint64_t, int, std::string>, std::vector<int>>;

Clusters FindClusters() {
  std::map<int, Lines> told = CpuInfo();
  int clock = 0;
  for (const auto& [core, facts] : told) clock = std::max(clock, Clock(facts));
  std::vector<int> cores = Numbered(kSystem, "cpu");
  if (cores.empty()) {
    for (const auto& [core, facts] : told) cores.push_back(core);
  }
  Clusters found;
  for (const int core : cores) {
    const std::string here = kSystem + "/cpu" + std::to_string(core);
    const int mhz = static_cast<int>(NumberAt(here + "/cpufreq/cpuinfo_max_freq") / 1000);
    const std::string maker = Of(told[core], "CPU implementer"), design = Of(told[core], "CPU part");
    const std::string part = maker + (maker.empty() || design.empty() ? "" : ":") + design;
    found[{NumberAt(here + "/cpu_capacity"), mhz != 0 ? mhz : clock, part}].push_back(core);
  }
  return found;
}

uint64_t SizeIn(const std::string& text) {
  const std::string number = text.substr(0, text.find_first_not_of("0123456789"));
  if (!IsNumber(number)) return 0;
  const std::string unit = text.substr(number.size());
  const int shift = unit == "K" ? 10 : unit == "M" ? 20 : unit == "G" ? 30 : unit.empty() ? 0 : 64;
  return shift == 64 ? 0 : std::stoull(number) << shift;
}

}  // namespace

std::string ClustersJson() {
  std::string list;
  for (const auto& [about, cores] : FindClusters()) {
    const auto& [capacity, mhz, part] = about;
    JsonObject one;
    one.AddRaw("cores", ListOf(cores)).Add("max_mhz", mhz).Add("capacity", capacity).Add("part", part);
    list += (list.empty() ? "" : ",") + one.text();
  }
  return "[" + list + "]";
}

int SlowCores() {
  const Clusters found = FindClusters();
  return found.size() < 2 ? 0 : static_cast<int>(found.begin()->second.size());
}

std::string CachesJson() {
  std::set<std::tuple<uint64_t, std::string, std::vector<int>, uint64_t>> found;
  for (const int core : Numbered(kSystem, "cpu")) {
    const std::string caches = kSystem + "/cpu" + std::to_string(core) + "/cache";
    for (const int index : Numbered(caches, "index")) {
      const std::string place = caches + "/index" + std::to_string(index);
      const uint64_t level = NumberAt(place + "/level"), size = SizeIn(Read(place + "/size"));
      std::string kind = Read(place + "/type");
      std::transform(kind.begin(), kind.end(), kind.begin(), [](unsigned char c) { return std::tolower(c); });
      std::vector<int> shared = Listed(Read(place + "/shared_cpu_list"));
      if (shared.empty()) shared = {core};
      if (level != 0 && size != 0) found.emplace(level, kind, std::move(shared), size);
    }
  }
  std::string list;
  for (const auto& [level, kind, cores, size] : found) {
    JsonObject one;
    one.Add("level", level).Add("kind", kind).Add("bytes", size).AddRaw("cores", ListOf(cores));
    list += (list.empty() ? "" : ",") + one.text();
  }
  return "[" + list + "]";
}

std::string CpuName() {
  for (const auto& [core, facts] : CpuInfo()) {
    if (const std::string name = Of(facts, "model name"); !name.empty()) return name;
  }
  utsname about{};
  return uname(&about) == 0 ? about.machine : "unknown";
}

std::vector<int> AllowedCores() {
  cpu_set_t allowed;
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(static_cast<size_t>(core), &allowed)) cores.push_back(core);
  }
  return cores;
}

std::vector<int> Listed(const std::string& text) {
  static const std::regex kList("\\d{1,4}(-\\d{1,4})?(,\\d{1,4}(-\\d{1,4})?)*");
  std::vector<int> cores;
  if (!std::regex_match(text, kList)) return cores;
  for (size_t at = 0; at <= text.size();) {
    const std::string part = text.substr(at, text.find(',', at) - at);
    const size_t dash = part.find('-');
    const int first = std::stoi(part), last = dash == std::string::npos ? first : std::stoi(part.substr(dash + 1));
    for (int core = first; core <= last; ++core) cores.push_back(core);
    at += part.size() + 1;
  }
  return cores;
}

std::string CpuTarget() {
#if defined(__aarch64__)
  // The kernel tells only what all cores can.  No -mcpu: that of a big core may promise what the kernel has switched
  // off.
  const unsigned long caps = getauxval(AT_HWCAP);
  std::string target = "llvm -mtriple=" CODL_TRIPLE " -mattr=+neon";
  if ((caps & HWCAP_ASIMDHP) != 0) target += ",+fullfp16";
  if ((caps & HWCAP_ASIMDDP) != 0) target += ",+dotprod";
  return target;
#elif defined(__x86_64__)
  // The levels of the x86-64 ABI, which LLVM knows as processors.
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                  __builtin_cpu_supports("avx512cd");
  return v4 ? "llvm -mcpu=x86-64-v4" : v3 ? "llvm -mcpu=x86-64-v3" : "llvm";
#else
  return "llvm";
#endif
}

}  // namespace codl_server
