#include "launch_recorder.h"

namespace tvm_codl {

namespace {
thread_local LaunchRecorder* current_recorder = nullptr;
}

LaunchRecorder::LaunchRecorder() : outer_(current_recorder) { current_recorder = this; }
LaunchRecorder::~LaunchRecorder() {
  current_recorder = outer_;
  for (cl_mem mem : released_) clReleaseMemObject(mem);  // not taken: the recorded call failed
}
LaunchRecorder* LaunchRecorder::Current() { return current_recorder; }

void LaunchRecorder::SetArg(cl_kernel kernel, cl_uint index, size_t size, const void* value) {
  const auto* bytes = static_cast<const uint8_t*>(value);
  pending_[kernel][index].assign(bytes, bytes + size);
}

void LaunchRecorder::Launch(cl_kernel kernel, cl_uint dims, const size_t* global, const size_t* local) {
  RecordedLaunch launch;
  launch.kernel = kernel;
  launch.dims = dims;
  for (cl_uint i = 0; i < dims && i < 3; ++i) {
    launch.global[i] = global[i];
    launch.local[i] = local != nullptr ? local[i] : 0;
  }
  launch.args = pending_[kernel];
  launches_.push_back(std::move(launch));
}

}  // namespace tvm_codl
