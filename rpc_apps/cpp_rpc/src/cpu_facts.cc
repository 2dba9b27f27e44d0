// The CPU's facts, from cpufreq, cpu_capacity and cache in /sys/devices/system/cpu, and from /proc/cpuinfo.
#include <sys/utsname.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <thread>
#include <tuple>

#include "facts.h"
#include "opencl/affinity.h"
#ifdef __aarch64__
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace codl_server {

namespace {

const std::string kSystem = "/sys/devices/system/cpu";
// /proc/cpuinfo has the current clock, which varies; a profile must not change from day to day.
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

// The numbers N of the entries `prefix`N of a folder.
std::vector<int> Numbered(const std::string& folder, const std::string& prefix) {
  std::vector<int> numbers;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    if (name.compare(0, prefix.size(), prefix) != 0 || !IsNumber(name.substr(prefix.size()))) continue;
    numbers.push_back(std::stoi(name.substr(prefix.size())));
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

// The lines of each core's block of /proc/cpuinfo.
std::map<int, Lines> ReadCpuInfo() {
  std::map<int, Lines> cores;
  Lines* facts = nullptr;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string name = Stripped(line.substr(0, colon)), value = Stripped(line.substr(colon + 1));
    if (name == "processor" && IsNumber(value)) {
      facts = &cores[std::stoi(value)];
    } else if (facts != nullptr) {
      (*facts)[name] = value;
    }
  }
  return cores;
}

std::string Find(const Lines& facts, const std::string& name) {
  const auto it = facts.find(name);
  return it == facts.end() ? "" : it->second;
}

// MHz: from the name (`... @ 2.60GHz`), else the current clock, rounded.
int Clock(const Lines& facts) {
  static const std::regex kNominal("@ *([0-9]+(?:\\.[0-9]+)?) *GHz"), kNumber("[0-9]+(?:\\.[0-9]+)?");
  std::smatch match;
  const std::string name = Find(facts, "model name"), current = Find(facts, "cpu MHz");
  if (std::regex_search(name, match, kNominal)) return static_cast<int>(std::lround(std::stod(match[1]) * 1000));
  if (!std::regex_match(current, kNumber)) return 0;
  return static_cast<int>(std::nearbyint(std::stod(current) / kClockStepMhz) * kClockStepMhz);
}

// Equal cores by capacity, clock (MHz) and design; the slowest first.
using Clusters = std::map<std::tuple<uint64_t, int, std::string>, std::vector<int>>;

Clusters FindClusters() {
  std::map<int, Lines> info = ReadCpuInfo();
  int clock = 0;
  for (const auto& [core, facts] : info) clock = std::max(clock, Clock(facts));
  std::vector<int> cores = Numbered(kSystem, "cpu");
  if (cores.empty()) {
    for (const auto& [core, facts] : info) cores.push_back(core);
  }
  Clusters clusters;
  for (const int core : cores) {
    const std::string here = kSystem + "/cpu" + std::to_string(core);
    const int mhz = static_cast<int>(NumberAt(here + "/cpufreq/cpuinfo_max_freq") / 1000);
    const std::string maker = Find(info[core], "CPU implementer"), design = Find(info[core], "CPU part");
    const std::string part = maker + (maker.empty() || design.empty() ? "" : ":") + design;
    clusters[{NumberAt(here + "/cpu_capacity"), mhz != 0 ? mhz : clock, part}].push_back(core);
  }
  return clusters;
}

uint64_t SizeIn(const std::string& text) {
  const std::string number = text.substr(0, text.find_first_not_of("0123456789"));
  if (!IsNumber(number)) return 0;
  const std::string unit = text.substr(number.size());
  const int shift = unit == "K" ? 10 : unit == "M" ? 20 : unit == "G" ? 30 : unit.empty() ? 0 : 64;
  return shift == 64 ? 0 : std::stoull(number) << shift;
}

JsonArray ClustersJson() {
  JsonArray list;
  for (const auto& [key, cores] : FindClusters()) {
    const auto& [capacity, mhz, part] = key;
    list.push_back(Json(JsonObject{
        {"cores", Json(cores)}, {"max_mhz", Json(mhz)}, {"capacity", Json(capacity)}, {"part", Json(part)}}));
  }
  return list;
}

JsonArray CachesJson() {
  std::set<std::tuple<uint64_t, std::string, std::vector<int>, uint64_t>> caches;
  for (const int core : Numbered(kSystem, "cpu")) {
    const std::string folder = kSystem + "/cpu" + std::to_string(core) + "/cache";
    for (const int index : Numbered(folder, "index")) {
      const std::string cache = folder + "/index" + std::to_string(index);
      const uint64_t level = NumberAt(cache + "/level"), size = SizeIn(Read(cache + "/size"));
      std::string kind = Read(cache + "/type");
      std::transform(kind.begin(), kind.end(), kind.begin(), [](unsigned char c) { return std::tolower(c); });
      std::vector<int> shared = tvm_codl::ToCores(tvm_codl::ParseCores(Read(cache + "/shared_cpu_list").c_str()));
      if (shared.empty()) shared = {core};
      if (level != 0 && size != 0) caches.emplace(level, kind, std::move(shared), size);
    }
  }
  JsonArray list;
  for (const auto& [level, kind, cores, size] : caches) {
    list.push_back(
        Json(JsonObject{{"level", Json(level)}, {"kind", Json(kind)}, {"bytes", Json(size)}, {"cores", Json(cores)}}));
  }
  return list;
}

// The LLVM target that makes code for this CPU.
std::string CpuTarget() {
#if defined(__aarch64__)
  // The kernel tells what all cores can do.  No -mcpu: a big core's may promise what the kernel has switched off.
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

}  // namespace

std::string CpuName() {
  for (const auto& [core, facts] : ReadCpuInfo()) {
    if (const std::string name = Find(facts, "model name"); !name.empty()) return name;
  }
  utsname machine{};
  return uname(&machine) == 0 ? machine.machine : "unknown";
}

JsonObject CpuFacts() {
  const cpu_set_t chosen = tvm_codl::ParseCores(std::getenv("CODL_CPU_CORES"));
  return {{"cpu_name", Json(CpuName())},
          {"cpu_cores", Json(tvm_codl::ToCores(CPU_COUNT(&chosen) == 0 ? tvm_codl::AllowedCores() : chosen))},
          {"cpu_target", Json(CpuTarget())},
          {"clusters", Json(ClustersJson())},
          {"caches", Json(CachesJson())}};
}

void SetEnvironment() {
  // Otherwise TVM would pin its threads, and OpenCL drivers that run on the CPU would inherit that (DESIGN, affinity).
  setenv("TVM_BIND_THREADS", "0", 0);
  // Work is cut into equal parts, which must not wait for slow cores.
  const Clusters clusters = FindClusters();
  const size_t slow = clusters.size() < 2 ? 0 : clusters.begin()->second.size();
  const size_t all = std::thread::hardware_concurrency();
  if (slow > 0 && all > slow) setenv("TVM_NUM_THREADS", std::to_string(all - slow).c_str(), 0);
}

}  // namespace codl_server
