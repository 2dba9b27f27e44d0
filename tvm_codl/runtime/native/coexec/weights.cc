#include "weights.h"

#include <algorithm>
#include <cstring>

namespace tvm_codl {

using tvm::runtime::NDArray;

WeightStore::WeightStore(std::vector<Named> weights) {
  for (auto& [name, array] : weights) {
    Weight weight;
    weight.bytes = static_cast<int64_t>(tvm::runtime::GetDataSize(*array.operator->()));
    weight.dtype = array->dtype;
    weight.shape.assign(array->shape, array->shape + array->ndim);
    weight.host = std::move(array);
    names_.push_back(name);
    weights_.emplace(name, std::move(weight));
  }
}

WeightStore::Weight& WeightStore::Find(const std::string& name) {
  auto it = weights_.find(name);
  if (it == weights_.end()) throw std::runtime_error("the library lacks the weight " + name);
  return it->second;
}

int64_t WeightStore::Bytes(const std::string& name) const {
  return const_cast<WeightStore*>(this)->Find(name).bytes;  // set once, at the start
}

NDArray WeightStore::OnHost(const std::string& name) {
  std::lock_guard<std::mutex> lock(mutex_);
  Weight& weight = Find(name);
  if (!weight.host.defined()) ReadBack(&weight);
  return weight.host;
}

WeightStore::Place WeightStore::OnDevice(const std::string& name, const OpenCLDevice& device, Form form) {
  std::lock_guard<std::mutex> lock(mutex_);
  Weight& weight = Find(name);
  auto it = weight.copies.find({device.context, form});
  if (it == weight.copies.end()) {
    if (!weight.host.defined()) ReadBack(&weight);
    Copy copy;
    copy.device = device;
    Write(weight, form, &copy);
    it = weight.copies.emplace(std::make_pair(device.context, form), std::move(copy)).first;
  }
  if (weight.host.defined() && weight.host.unique()) weight.host = NDArray();
  return {it->second.mem.get(), it->second.address};
}

void WeightStore::Write(const Weight& weight, Form form, Copy* copy) {
  const OpenCLDevice& device = copy->device;
  const auto bytes = static_cast<size_t>(weight.bytes);
  const size_t room = std::max<size_t>(bytes, 1);  // OpenCL has no empty buffers
  if (form == Form::kSvm) {
    copy->svm = AllocateSvm(device.context, room);
    copy->address = copy->svm.get();
    std::memcpy(copy->address, weight.host->data, bytes);
    return;
  }
  const cl_mem_flags flags = CL_MEM_READ_WRITE | (form == Form::kMappable ? CL_MEM_ALLOC_HOST_PTR : 0);
  copy->mem = NewBuffer(device.context, flags, room);
  const Queue queue = NewQueue(device.context, device.device);
  if (bytes != 0) {
    Check(clEnqueueWriteBuffer(queue.get(), copy->mem.get(), CL_TRUE, 0, bytes, weight.host->data, 0, nullptr, nullptr),
          "clEnqueueWriteBuffer");
  }
  if (form == Form::kMappable) {
    // Nobody writes it again, so both processors may read it while it is mapped.
    cl_int status = CL_SUCCESS;
    copy->address =
        clEnqueueMapBuffer(queue.get(), copy->mem.get(), CL_TRUE, CL_MAP_READ, 0, room, 0, nullptr, nullptr, &status);
    Check(status, "clEnqueueMapBuffer");
  }
}

void WeightStore::ReadBack(Weight* weight) {
  NDArray host = NDArray::Empty(tvm::runtime::ShapeTuple(weight->shape), weight->dtype, DLDevice{kDLCPU, 0});
  const auto bytes = static_cast<size_t>(weight->bytes);
  const Copy& copy = weight->copies.begin()->second;  // exists: the array is freed only after a copy
  if (copy.address != nullptr) {
    std::memcpy(host->data, copy.address, bytes);
  } else if (bytes != 0) {
    const Queue queue = NewQueue(copy.device.context, copy.device.device);
    Check(clEnqueueReadBuffer(queue.get(), copy.mem.get(), CL_TRUE, 0, bytes, host->data, 0, nullptr, nullptr),
          "clEnqueueReadBuffer");
  }
  weight->host = std::move(host);
}

int64_t WeightStore::HeldBytes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  int64_t held = 0;
  for (const auto& [name, weight] : weights_) {
    const auto places = static_cast<int64_t>(weight.copies.size()) + (weight.host.defined() ? 1 : 0);
    held += places * weight.bytes;
  }
  return held;
}

}  // namespace tvm_codl
