#include "programs.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace tvm_codl {

namespace {

using Key = std::pair<cl_context, std::string>;

struct Known {
  Key key;
  int users = 1;
  bool kept = false;
};

struct Programs {
  std::map<cl_program, Known> known;
  std::map<Key, cl_program> built;
  std::vector<cl_program> order;  // the kept ones, the one that was used last at the end
};

// Some kernels of a network on each of several plans; a program takes a megabyte at most.
constexpr size_t kMost = 256;

std::mutex mutex;

// Never destroyed: programs are released by destructors that run at exit.
Programs& All() {
  static auto* programs = new Programs();
  return *programs;
}

void Forget(std::map<cl_program, Known>::iterator it) {
  if (it->second.users == 0 && !it->second.kept) All().known.erase(it);
}

}  // namespace

cl_program FindProgram(cl_context context, const std::string& source) {
  std::lock_guard<std::mutex> lock(mutex);
  Programs& all = All();
  const auto it = all.built.find({context, source});
  if (it == all.built.end() || clRetainProgram(it->second) != CL_SUCCESS) return nullptr;
  ++all.known.at(it->second).users;
  const auto at = std::find(all.order.begin(), all.order.end(), it->second);
  std::rotate(at, at + 1, all.order.end());
  return it->second;
}

void AddProgram(cl_context context, const std::string& source, cl_program program) {
  std::lock_guard<std::mutex> lock(mutex);
  All().known[program] = {{context, source}};
}

cl_program KeepProgram(cl_program program) {
  std::lock_guard<std::mutex> lock(mutex);
  Programs& all = All();
  const auto it = all.known.find(program);
  if (it == all.known.end() || it->second.kept) return nullptr;
  cl_uint devices = 0;
  clGetContextInfo(it->second.key.first, CL_CONTEXT_NUM_DEVICES, sizeof(devices), &devices, nullptr);
  if (devices != 1 || all.built.count(it->second.key) != 0 || clRetainProgram(program) != CL_SUCCESS) return nullptr;
  it->second.kept = true;
  all.built[it->second.key] = program;
  all.order.push_back(program);
  if (all.order.size() <= kMost) return nullptr;
  const cl_program oldest = all.order.front();
  all.order.erase(all.order.begin());
  const auto gone = all.known.find(oldest);
  all.built.erase(gone->second.key);
  gone->second.kept = false;
  Forget(gone);
  return oldest;
}

void LeaveProgram(cl_program program) {
  std::lock_guard<std::mutex> lock(mutex);
  const auto it = All().known.find(program);
  if (it == All().known.end()) return;
  --it->second.users;
  Forget(it);
}

bool HasCommonName(cl_program program) {
  std::lock_guard<std::mutex> lock(mutex);
  return All().known.count(program) != 0;
}

std::string SourceOf(cl_program program) {
  std::lock_guard<std::mutex> lock(mutex);
  const auto it = All().known.find(program);
  return it == All().known.end() ? "" : it->second.key.second;
}

bool IsKept(cl_program program) {
  std::lock_guard<std::mutex> lock(mutex);
  const auto it = All().known.find(program);
  return it != All().known.end() && it->second.kept;
}

}  // namespace tvm_codl
