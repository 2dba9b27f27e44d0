// What a GPU can do at most, measured: "codl.measure_peak" (device number) -> JSON, times in us, rates in 10^9 a
// second.
//
// Each kernel runs longer and longer until kLongEnough or the end of its time, so that a phone, a large GPU and a CPU
// that plays one all take less than a second together.
#include <tvm/runtime/registry.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>

#include "cl_handle.h"
#include "device.h"
#include "json.h"
#include "timeline.h"

namespace tvm_codl {

namespace {

constexpr int64_t kLongEnough = 20'000'000;  // ns of one launch
constexpr int64_t kEach = 120'000'000;       // ns for one rate
constexpr int kLatencies = 21;
constexpr int kLaunches = 200;
constexpr size_t kGroup = 64;
constexpr size_t kItemsOfUnit = 2048;
constexpr size_t kChains = 8;  // of the kernel below
constexpr size_t kTransferBytes = size_t{16} << 20;

// Nothing in it can be left out: every chain depends on arguments and ends in what is written.  Eight chains of four
// lanes cover the latency of any pipeline, in half the registers of a work-item; a CPU has vectors of its own width.
// Compilers join a product and a sum (FP_CONTRACT is on in OpenCL), as in our kernels; for mad() PoCL calls a function.
constexpr char kArithmetic[] = R"(
#ifdef HALF
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#endif
__kernel void multiply_add(__global LANES* out, float scale, float offset, int rounds) {
  const LANES a = (LANES)((TYPE)scale), b = (LANES)((TYPE)offset);
  LANES x0 = (LANES)((TYPE)(get_global_id(0) & 7)), x1 = x0 + b, x2 = x1 + b, x3 = x2 + b;
  LANES x4 = x3 + b, x5 = x4 + b, x6 = x5 + b, x7 = x6 + b;
  for (int i = 0; i < rounds; ++i) {
    x0 = x0 * a + b; x1 = x1 * a + b; x2 = x2 * a + b; x3 = x3 * a + b;
    x4 = x4 * a + b; x5 = x5 * a + b; x6 = x6 * a + b; x7 = x7 * a + b;
  }
  out[get_global_id(0)] = ((x0 + x1) + (x2 + x3)) + ((x4 + x5) + (x6 + x7));
}
)";

constexpr char kMemory[] = R"(
__kernel void move(__global float4* to, __global const float4* from) {
  to[get_global_id(0)] = from[get_global_id(0)];
}
__kernel void nothing(__global float4* to) {
  if (get_global_id(0) == 1) to[0] = (float4)(0.0f);
}
)";

struct FreeProgram {
  void operator()(cl_program program) const { clReleaseProgram(program); }
};
using Program = std::unique_ptr<std::remove_pointer_t<cl_program>, FreeProgram>;

class Probe {
 public:
  explicit Probe(const OpenCLDevice& device)
      : device_(device), queue_(NewQueue(device.context, device.device, CL_QUEUE_PROFILING_ENABLE)) {
    const auto memory = Info<cl_ulong>(device.device, CL_DEVICE_GLOBAL_MEM_SIZE);
    const bool unified = Info<cl_bool>(device.device, CL_DEVICE_HOST_UNIFIED_MEMORY) == CL_TRUE;
    // More than any cache; of a phone's memory little.
    bytes_ = unified ? size_t{32} << 20 : size_t{256} << 20;
    while (bytes_ > kTransferBytes && bytes_ > memory / 16) bytes_ /= 2;
    from_ = NewBuffer(device.context, CL_MEM_READ_WRITE, bytes_);
    to_ = NewBuffer(device.context, CL_MEM_READ_WRITE, bytes_);
    memory_ = Build(kMemory, "");
    move_ = NewKernel(memory_, "move");
    nothing_ = NewKernel(memory_, "nothing");
    SetBuffer(move_, 0, to_);
    SetBuffer(move_, 1, from_);
    SetBuffer(nothing_, 0, to_);
  }

  // Operations a ns; a multiply-add is two.
  double Arithmetic(const std::string& type) {
    const std::string half = type == "half" ? " -DHALF" : "";
    const auto native = Info<cl_uint>(device_.device, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT);
    const size_t lanes = native >= 16 ? 16 : native >= 8 ? 8 : 4;
    const Program program = Build(kArithmetic, "-DTYPE=" + type + " -DLANES=" + type + std::to_string(lanes) + half);
    const Kernel kernel = NewKernel(program, "multiply_add");
    const float scale = 0.999f, offset = 0.25f;
    SetBuffer(kernel, 0, to_);
    Check(clSetKernelArg(kernel.get(), 1, sizeof(scale), &scale), "clSetKernelArg");
    Check(clSetKernelArg(kernel.get(), 2, sizeof(offset), &offset), "clSetKernelArg");
    const auto units = std::max<cl_uint>(Info<cl_uint>(device_.device, CL_DEVICE_MAX_COMPUTE_UNITS), 1);
    const size_t items = std::min(kItemsOfUnit * units, bytes_ / (lanes * sizeof(float)));
    cl_int rounds = 16;
    double best = 0.0;
    const int64_t until = HostNow() + kEach;
    for (int run = 0; run < 2 || HostNow() < until; ++run) {
      Check(clSetKernelArg(kernel.get(), 3, sizeof(rounds), &rounds), "clSetKernelArg");
      const int64_t taken = Run([&](cl_event* done) { Launch(kernel, items, done); });
      best = std::max(best, 2.0 * static_cast<double>(lanes * kChains) * static_cast<double>(items) * rounds /
                                static_cast<double>(taken));
      if (taken < kLongEnough) rounds *= static_cast<cl_int>(std::clamp<int64_t>(kLongEnough / taken, 2, 16));
    }
    return best;
  }

  // Bytes read and written a ns.
  double Bandwidth() {
    return Rate(2 * bytes_, [&](cl_event* done) { Launch(move_, bytes_ / sizeof(cl_float4), done); });
  }

  // Bytes a ns between the host's pinned memory and the device's.
  double Transfer(bool to_gpu) {
    const Mem pinned = NewBuffer(device_.context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, kTransferBytes);
    cl_int status = CL_SUCCESS;
    void* host = clEnqueueMapBuffer(queue_.get(), pinned.get(), CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, kTransferBytes,
                                    0, nullptr, nullptr, &status);
    Check(status, "clEnqueueMapBuffer");
    std::memset(host, 0, kTransferBytes);
    const double rate = Rate(kTransferBytes, [&](cl_event* done) {
      status = to_gpu
                   ? clEnqueueWriteBuffer(queue_.get(), to_.get(), CL_FALSE, 0, kTransferBytes, host, 0, nullptr, done)
                   : clEnqueueReadBuffer(queue_.get(), to_.get(), CL_FALSE, 0, kTransferBytes, host, 0, nullptr, done);
      Check(status, "copying between host and device");
    });
    Check(clEnqueueUnmapMemObject(queue_.get(), pinned.get(), host, 0, nullptr, nullptr), "clEnqueueUnmapMemObject");
    Check(clFinish(queue_.get()), "clFinish");
    return rate;
  }

  // us of a kernel that does nothing, in a row of such.
  double LaunchTime() {
    const auto row = [&](int number) {
      const int64_t start = HostNow();
      for (int i = 0; i < number; ++i) Launch(nothing_, 1, nullptr);
      Check(clFinish(queue_.get()), "clFinish");
      return HostNow() - start;
    };
    const int64_t best = std::min({row(kLaunches), row(kLaunches), row(kLaunches)});
    return static_cast<double>(best) / kLaunches / 1e3;
  }

  // us from enqueueing such a kernel until the thread that waits for it goes on.
  double WaitTime() {
    return MedianTime([&] {
      const int64_t start = HostNow();
      Await([&](cl_event* done) { Launch(nothing_, 1, done); });
      return HostNow() - start;
    });
  }

  // us from releasing a kernel that waits for the host until the thread that waits for it goes on.
  double ReleaseTime() {
    return MedianTime([&] {
      cl_int status = CL_SUCCESS;
      const Event release(clCreateUserEvent(device_.context, &status));
      Check(status, "clCreateUserEvent");
      const cl_event wait = release.get();
      const size_t items = 1;
      cl_event done = nullptr;
      Check(clEnqueueNDRangeKernel(queue_.get(), nothing_.get(), 1, nullptr, &items, nullptr, 1, &wait, &done),
            "clEnqueueNDRangeKernel");
      const Event owned(done);
      Check(clFlush(queue_.get()), "clFlush");
      const int64_t start = HostNow();
      Check(clSetUserEventStatus(release.get(), CL_COMPLETE), "clSetUserEventStatus");
      Check(clWaitForEvents(1, &done), "clWaitForEvents");
      return HostNow() - start;
    });
  }

 private:
  using Enqueue = std::function<void(cl_event*)>;

  Program Build(const char* source, const std::string& options) const {
    cl_int status = CL_SUCCESS;
    Program program(clCreateProgramWithSource(device_.context, 1, &source, nullptr, &status));
    Check(status, "clCreateProgramWithSource");
    Check(clBuildProgram(program.get(), 1, &device_.device, options.c_str(), nullptr, nullptr), "clBuildProgram");
    return program;
  }

  static Kernel NewKernel(const Program& program, const char* name) {
    cl_int status = CL_SUCCESS;
    Kernel kernel(clCreateKernel(program.get(), name, &status));
    Check(status, "clCreateKernel");
    return kernel;
  }

  static void SetBuffer(const Kernel& kernel, cl_uint index, const Mem& buffer) {
    const cl_mem mem = buffer.get();
    Check(clSetKernelArg(kernel.get(), index, sizeof(mem), &mem), "clSetKernelArg");
  }

  void Launch(const Kernel& kernel, size_t items, cl_event* done) const {
    const size_t group = items % kGroup == 0 ? kGroup : 1;
    Check(clEnqueueNDRangeKernel(queue_.get(), kernel.get(), 1, nullptr, &items, &group, 0, nullptr, done),
          "clEnqueueNDRangeKernel");
  }

  Event Await(const Enqueue& enqueue) const {
    cl_event done = nullptr;
    enqueue(&done);
    Event owned(done);
    Check(clFlush(queue_.get()), "clFlush");
    Check(clWaitForEvents(1, &done), "clWaitForEvents");
    return owned;
  }

  // ns by the device's clock.
  int64_t Run(const Enqueue& enqueue) const {
    const Event done = Await(enqueue);
    cl_ulong start = 0, end = 0;
    Check(clGetEventProfilingInfo(done.get(), CL_PROFILING_COMMAND_START, sizeof(start), &start, nullptr),
          "clGetEventProfilingInfo");
    Check(clGetEventProfilingInfo(done.get(), CL_PROFILING_COMMAND_END, sizeof(end), &end, nullptr),
          "clGetEventProfilingInfo");
    return std::max<int64_t>(static_cast<int64_t>(end - start), 1);
  }

  // The best of what fits into a third of kEach, after one run that touches the memory.
  double Rate(size_t bytes, const Enqueue& enqueue) const {
    Run(enqueue);
    double best = 0.0;
    const int64_t until = HostNow() + kEach / 3;
    do {
      best = std::max(best, static_cast<double>(bytes) / static_cast<double>(Run(enqueue)));
    } while (HostNow() < until);
    return best;
  }

  template <typename Take>
  static double MedianTime(const Take& take_ns) {
    std::array<int64_t, kLatencies> times{};
    for (int64_t& time : times) time = take_ns();
    const auto middle = times.begin() + kLatencies / 2;
    std::nth_element(times.begin(), middle, times.end());
    return static_cast<double>(*middle) / 1e3;
  }

  OpenCLDevice device_;
  Queue queue_;
  size_t bytes_ = 0;
  Mem from_, to_;
  Program memory_;
  Kernel move_, nothing_;
};

bool HasHalf(cl_device_id device) {
  size_t length = 0;
  if (clGetDeviceInfo(device, CL_DEVICE_EXTENSIONS, 0, nullptr, &length) != CL_SUCCESS) return false;
  std::string names(length, '\0');
  if (clGetDeviceInfo(device, CL_DEVICE_EXTENSIONS, length, names.data(), nullptr) != CL_SUCCESS) return false;
  return names.find("cl_khr_fp16") != std::string::npos;
}

}  // namespace

TVM_REGISTER_GLOBAL("codl.measure_peak").set_body_typed([](int id) {
  const OpenCLDevice device = FindDevice(id);
  Probe probe(device);
  JsonObject peak{{"float32_gflops", Json(probe.Arithmetic("float"))},
                  {"memory_gbps", Json(probe.Bandwidth())},
                  {"to_gpu_gbps", Json(probe.Transfer(true))},
                  {"to_cpu_gbps", Json(probe.Transfer(false))},
                  {"launch_us", Json(probe.LaunchTime())},
                  {"wait_us", Json(probe.WaitTime())},
                  {"release_us", Json(probe.ReleaseTime())}};
  if (HasHalf(device.device)) peak["float16_gflops"] = Json(probe.Arithmetic("half"));
  return Json(peak).serialize();
});

}  // namespace tvm_codl
