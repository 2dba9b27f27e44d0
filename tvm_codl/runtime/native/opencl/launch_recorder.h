// Records kernel launches instead of making them.
//
// TVM's host code computes the launch sizes and arguments of its kernels in every call.  With static shapes they never
// change, so the co-executor calls each function once, at load, under a recorder, and replays the launches.
#ifndef TVM_CODL_OPENCL_LAUNCH_RECORDER_H_
#define TVM_CODL_OPENCL_LAUNCH_RECORDER_H_

#include <CL/cl.h>

#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace tvm_codl {

struct RecordedLaunch {
  cl_kernel kernel = nullptr;  // TVM's kernel; the replay makes one of its own from the same program
  cl_uint dims = 0;
  std::array<size_t, 3> global{};
  std::array<size_t, 3> local{};
  std::map<cl_uint, std::vector<uint8_t>> args;  // raw bytes, by argument index
};

class LaunchRecorder {
 public:
  LaunchRecorder();   // becomes this thread's recorder
  ~LaunchRecorder();  // ends the recording
  LaunchRecorder(const LaunchRecorder&) = delete;
  LaunchRecorder& operator=(const LaunchRecorder&) = delete;

  static LaunchRecorder* Current();

  void SetArg(cl_kernel kernel, cl_uint index, size_t size, const void* value);
  void Launch(cl_kernel kernel, cl_uint dims, const size_t* global, const size_t* local);
  std::vector<RecordedLaunch> Take() { return std::move(launches_); }
  // A recorded launch may name a buffer that was released meanwhile; the caller of TakeReleased releases it.
  void Release(cl_mem mem) { released_.push_back(mem); }
  std::vector<cl_mem> TakeReleased() { return std::exchange(released_, {}); }

 private:
  std::map<cl_kernel, std::map<cl_uint, std::vector<uint8_t>>> pending_;
  std::vector<RecordedLaunch> launches_;
  std::vector<cl_mem> released_;
  LaunchRecorder* outer_;
};

}  // namespace tvm_codl

#endif  // TVM_CODL_OPENCL_LAUNCH_RECORDER_H_
