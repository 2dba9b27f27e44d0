#include "facts.h"

#include <sys/utsname.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "about.h"
#include "json.h"
#ifdef __ANDROID__
#include <sys/system_properties.h>
#endif

namespace codl_server {

namespace {

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string Architecture() {
  utsname about{};
  return uname(&about) == 0 ? about.machine : "unknown";
}

#ifdef __ANDROID__
std::string Property(const char* name) {
  char value[PROP_VALUE_MAX] = "";
  __system_property_get(name, value);
  return value;
}
#endif

// The phone's or board's own name.
std::string MachineName() {
  if (const std::string named = Variable("CODL_PHONE_NAME"); !named.empty()) return named;
#ifdef __ANDROID__
  const std::string model = Property("ro.product.model");
  if (!model.empty()) return Property("ro.product.manufacturer") + " " + model;
#endif
  std::ifstream file("/proc/device-tree/model");
  std::string board;
  if (std::getline(file, board, '\0') && !board.empty()) return board;
  return "native phone (" + CpuName() + ")";
}

void AddGpu(const GpuFacts& gpu, JsonObject* profile) {
  const bool adreno = gpu.name.find("Adreno") != std::string::npos;
  profile->Add("gpu_name", gpu.name)
      .Add("gpu_target", !gpu.found ? ""
                         : adreno   ? "opencl -device=adreno"
                                    : "opencl -device=mali")
      .Add("gpu_version", gpu.version)
      .AddRaw("gpu_cores", ListOf(gpu.on_cpu ? Listed(Variable("CODL_GPU_CORES")) : std::vector<int>()))
      .Add("compute_units", gpu.compute_units)
      .Add("max_work_group", gpu.max_work_group)
      .Add("local_memory", gpu.local_memory)
      .Add("unified_memory", gpu.unified)
      .Add("float16", (" " + gpu.extensions + " ").find(" cl_khr_fp16 ") != std::string::npos)
      .Add("global_mem_cache_size", gpu.cache)
      .Add("kernel_wave_size", gpu.wave)
      .Add("gpu_mhz", gpu.mhz)
      .Add("global_memory", gpu.memory)
      .Add("largest_buffer", gpu.largest_buffer)
      .Add("vector_width", gpu.vector_width)
      .Add("memory_kind", gpu.memory_kind)
      .Add("images", gpu.images)
      .AddRaw("image2d", "[" + std::to_string(gpu.image_width) + "," + std::to_string(gpu.image_height) + "]")
      .Add("device_queues", gpu.device_queues)
      .Add("device_queue_size", gpu.device_queue_size)
      .Add("device_events", gpu.device_events);
}

}  // namespace

std::string ProfileJson() {
  const std::vector<int> named = Listed(Variable("CODL_CPU_CORES"));
  JsonObject profile;
  // An app in the foreground may be given other clocks than a process of the shell: what was measured is kept apart.
  profile.Add("name", MachineName() + (Kind() == "app" ? " (app)" : ""))
      .Add("arch", Architecture())
      .Add("cpu_name", CpuName())
      .AddRaw("cpu_cores", ListOf(named.empty() ? AllowedCores() : named))
      .Add("cpu_target", CpuTarget())
      .Add("build_id", BuildId())
      .AddRaw("clusters", ClustersJson())
      .AddRaw("caches", CachesJson());
  AddGpu(AskGpu(), &profile);
  return profile.text();
}

}  // namespace codl_server
