#include "executor.h"

#include <algorithm>
#include <cstring>

#include "roaming.h"

namespace tvm_codl {

using tvm::runtime::DataType;
using tvm::runtime::Module;

namespace {

std::string Describe(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i != 0 ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

void CheckPort(const Port& port, const DLTensor& data) {
  const std::vector<int64_t> shape(data.shape, data.shape + data.ndim);
  if (shape != port.view.shape) {
    throw std::runtime_error(port.name + " has shape " + Describe(port.view.shape) + ", not " + Describe(shape));
  }
  if (DataType(data.dtype) != DataType(port.view.dtype)) {
    throw std::runtime_error(port.name + " has type " + tvm::runtime::DLDataType2String(port.view.dtype) + ", not " +
                             tvm::runtime::DLDataType2String(data.dtype));
  }
  if (data.device.device_type != kDLCPU) throw std::runtime_error(port.name + " must come from CPU memory");
  if (!tvm::runtime::IsContiguous(data)) throw std::runtime_error(port.name + " must be compact");
}

Kind KindOf(Do what) {
  switch (what) {
    case Do::kCall:
      return Kind::kKernel;
    case Do::kWait:
      return Kind::kWait;
    case Do::kSignal:
      return Kind::kSignal;
    default:
      return Kind::kShare;
  }
}

}  // namespace

Executor::Executor(std::shared_ptr<const Program> program, std::shared_ptr<WeightStore> weights,
                   std::vector<Module> libraries, int device_id, const std::string& sharing)
    : program_(std::move(program)), libraries_(std::move(libraries)) {
  OpenCLDevice device;
  Sharing chosen = Sharing::kSvm;
  if (!program_->gpu.empty()) {
    device = FindDevice(device_id);
    chosen = ChooseSharing(device, sharing);
  }
  memory_ = std::make_unique<Memory>(*program_, device, chosen, std::move(weights));
  if (device.context != nullptr) gpu_ = std::make_unique<GpuList>(*program_, libraries_, device, memory_.get());
  if (gpu_) memory_->EndRun(gpu_->queue());
  for (const Step& step : program_->cpu) {
    std::unique_ptr<PreparedCall> call;
    if (step.what == Do::kCall) {
      call = std::make_unique<PreparedCall>(FindFunction(libraries_, step.function), step, *memory_);
      cpu_copied_ += call->copied_bytes();
    }
    calls_.push_back(std::move(call));
  }
  steps_of_.resize(program_->regions.size());
  for (const auto* list : {&program_->cpu, &program_->gpu}) {
    for (size_t i = 0; i < list->size(); ++i) {
      const Step& step = (*list)[i];
      if (step.region >= 0 && step.what <= Do::kCopy) steps_of_[static_cast<size_t>(step.region)].push_back(i);
    }
  }
}

void Executor::SetInput(int index, const DLTensor& data) {
  const Port& port = program_->inputs.at(static_cast<size_t>(index));
  CheckPort(port, data);
  std::memcpy(memory_->Host(port.view), static_cast<const uint8_t*>(data.data) + data.byte_offset,
              static_cast<size_t>(port.view.bytes));
}

void Executor::GetOutput(int index, DLTensor* data) const {
  const Port& port = program_->outputs.at(static_cast<size_t>(index));
  CheckPort(port, *data);
  std::memcpy(static_cast<uint8_t*>(data->data) + data->byte_offset, memory_->Host(port.view),
              static_cast<size_t>(port.view.bytes));
}

void Executor::TakeInputs(const Executor& other) {
  for (size_t i = 0; i < program_->inputs.size(); ++i) {
    const View& to = program_->inputs[i].view;
    std::memcpy(memory_->Host(to), other.memory_->Host(other.program_->inputs.at(i).view),
                static_cast<size_t>(to.bytes));
  }
}

void Executor::RunCpuStep(size_t index) {
  const Step& step = program_->cpu[index];
  switch (step.what) {
    case Do::kCall:
      ReturnToCpu();
      calls_[index]->Run();
      return;
    case Do::kCopy:
      ReturnToCpu();
      std::memcpy(memory_->Host(step.args[1]), memory_->Host(step.args[0]), static_cast<size_t>(step.args[0].bytes));
      return;
    case Do::kWait: {
      const int64_t start = HostNow();
      gpu_->Wait(step.event, spin_us);
      waited_ns_ += HostNow() - start;
      return;
    }
    case Do::kSignal:
      if (gpu_) gpu_->Signal(step.event);
      return;
    default:
      return;
  }
}

void Executor::Feed(size_t until, std::vector<Span>* spans) {
  if (spans == nullptr || !gpu_->Behind(until)) return gpu_->Feed(until);
  const int64_t start = HostNow();
  gpu_->Feed(until);
  spans->push_back({start, HostNow(), -1, -1, Kind::kFeed, false});
}

void Executor::RunOnce(std::vector<Span>* spans) {
  const auto& steps = program_->cpu;
  waited_ns_ = 0;
  try {
    if (gpu_) gpu_->Begin(spans != nullptr, spin_us);
    for (size_t i = 0; i < steps.size(); ++i) {
      if (gpu_) Feed(program_->feed_until[i], spans);
      const int64_t start = spans == nullptr ? 0 : HostNow();
      RunCpuStep(i);
      if (spans == nullptr) continue;
      spans->push_back({start, HostNow(), steps[i].region, static_cast<int>(i), KindOf(steps[i].what), false});
    }
    if (gpu_) {
      Feed(program_->feed_until[steps.size()], spans);
      const int64_t start = HostNow();
      if (Roams()) LeaveCpu();
      gpu_->Finish(spin_us);
      waited_ns_ += HostNow() - start;
      if (spans != nullptr && !steps.empty()) {
        spans->push_back({start, HostNow(), -1, static_cast<int>(steps.size()), Kind::kWait, false});
      }
    }
  } catch (...) {
    if (gpu_) gpu_->Abandon();
    throw;
  }
  copied_bytes_ = cpu_copied_ + (gpu_ ? gpu_->copied_bytes() : 0);
}

void Executor::FlushEvery(int commands) {
  if (commands < 0) throw std::runtime_error("the flush period must not be negative");
  if (gpu_) gpu_->flush_every = static_cast<size_t>(commands);
}

void Executor::Run() {
  const CpuThreads::Scope chosen(cpu_threads_, Roams());
  RunOnce(nullptr);
}

std::vector<Span> Executor::Timeline() {
  const CpuThreads::Scope chosen(cpu_threads_);
  std::vector<Span> spans;
  spans.reserve(2 * program_->cpu.size() + 4 * program_->gpu.size() + 8);
  RunOnce(&spans);
  if (gpu_) gpu_->Collect(&spans);
  return spans;
}

}  // namespace tvm_codl
