#include "program.h"

#include <limits>
#include <map>

#include "read_json.h"

namespace tvm_codl {

namespace {

constexpr int64_t kLargestBuffer = int64_t{1} << 36;
constexpr int64_t kMostBlocks = int64_t{1} << 20;
// How many CPU signals the GPU list is enqueued ahead of the CPU: one segment runs, one waits behind it.
constexpr size_t kSignalsAhead = 2;
constexpr size_t kNowhere = std::numeric_limits<size_t>::max();

const std::map<std::string, DLDataType> kTypes = {{"float32", {kDLFloat, 32, 1}}, {"float16", {kDLFloat, 16, 1}},
                                                  {"float64", {kDLFloat, 64, 1}}, {"int64", {kDLInt, 64, 1}},
                                                  {"int32", {kDLInt, 32, 1}},     {"int16", {kDLInt, 16, 1}},
                                                  {"int8", {kDLInt, 8, 1}},       {"uint8", {kDLUInt, 8, 1}},
                                                  {"uint32", {kDLUInt, 32, 1}},   {"bool", {kDLUInt, 1, 1}}};
const std::map<std::string, Space> kSpaces = {{"cpu", Space::kCpu}, {"gpu", Space::kGpu}, {"shared", Space::kShared}};

class Parser {
 public:
  Program Read(const picojson::value& json) {
    const auto& object = Object(json, "program");
    if (Integer(Field(object, "format"), "format", 0, 1 << 20) != 2) {
      Fail("its format is not the one that this runtime reads; rebuild the library");
    }
    for (const auto& value : Array(Field(object, "buffers"), "buffers")) ReadBuffer(Object(value, "buffer"));
    program_.events = static_cast<int>(Integer(Field(object, "events"), "events", 0, 1 << 20));
    for (const auto& value : Array(Field(object, "weights"), "weights")) {
      const auto& pair = Object(value, "weight");
      program_.weights.push_back({BufferIndex(Field(pair, "buffer")), String(Field(pair, "name"), "weight name")});
    }
    for (const auto& value : Array(Field(object, "regions"), "regions")) {
      const auto& region = Object(value, "region");
      const bool gpu = String(Field(region, "processor"), "processor") == "gpu";
      program_.regions.push_back(
          {String(Field(region, "name"), "region name"), gpu ? Processor::kGpu : Processor::kCpu});
    }
    ReadList(Array(Field(object, "cpu"), "cpu"), Processor::kCpu, &program_.cpu);
    ReadList(Array(Field(object, "gpu"), "gpu"), Processor::kGpu, &program_.gpu);
    ReadPorts(Array(Field(object, "inputs"), "inputs"), &program_.inputs);
    ReadPorts(Array(Field(object, "outputs"), "outputs"), &program_.outputs);
    NumberBlocks();
    PlanFeeding();
    return std::move(program_);
  }

 private:
  void ReadBuffer(const picojson::object& object) {
    Buffer buffer;
    buffer.bytes = Integer(Field(object, "bytes"), "bytes", 1, kLargestBuffer);
    buffer.space = OneOf(kSpaces, String(Field(object, "space"), "space"), "space");
    if (object.count("block") != 0) {
      buffer.block = static_cast<int>(Integer(Field(object, "block"), "block", 0, kMostBlocks));
      buffer.at = Integer(Field(object, "at"), "at", 0, kLargestBuffer);
    }
    if (object.count("common") != 0) {
      buffer.common = Integer(Field(object, "common"), "common", 0, kLargestBuffer);
    }
    program_.buffers.push_back(buffer);
  }

  static int Index(const picojson::value& value, const char* what, size_t count) {
    return static_cast<int>(Integer(value, what, 0, static_cast<int64_t>(count) - 1));
  }

  int BufferIndex(const picojson::value& value) { return Index(value, "buffer", program_.buffers.size()); }

  View ReadView(const picojson::value& value) {
    const auto& object = Object(value, "view");
    View view;
    view.buffer = BufferIndex(Field(object, "buffer"));
    const int64_t room = program_.buffers[static_cast<size_t>(view.buffer)].bytes;
    view.offset = Integer(Field(object, "offset"), "offset", 0, room);
    view.dtype = OneOf(kTypes, String(Field(object, "dtype"), "dtype"), "type");
    int64_t elements = 1;
    for (const auto& extent : Array(Field(object, "shape"), "shape")) {
      const int64_t size = Integer(extent, "extent", 1, kLargestBuffer);
      if (elements > kLargestBuffer / size) Fail("a view larger than any buffer");
      elements *= size;
      view.shape.push_back(size);
    }
    view.bytes = elements * ((view.dtype.bits + 7) / 8);
    if (view.bytes > room - view.offset) Fail("a view past the end of its buffer");
    return view;
  }

  View ReadViewFor(const picojson::value& value, Processor processor) {
    View view = ReadView(value);
    const Space space = program_.buffers[static_cast<size_t>(view.buffer)].space;
    if (space == (processor == Processor::kCpu ? Space::kGpu : Space::kCpu)) {
      Fail("a step on a buffer of the other processor");
    }
    return view;
  }

  void ReadList(const picojson::array& list, Processor processor, std::vector<Step>* steps) {
    for (const auto& value : list) {
      const auto& object = Object(value, "step");
      const std::string& what = String(Field(object, "do"), "do");
      Step step;
      if (object.count("region") != 0) {
        step.region = Index(Field(object, "region"), "region", program_.regions.size());
        if (program_.regions[static_cast<size_t>(step.region)].processor != processor) {
          Fail("a region's step stands in the other processor's list");
        }
      }
      if (what == "wait" || what == "signal") {
        step.what = what == "wait" ? Do::kWait : Do::kSignal;
        step.event = Index(Field(object, "event"), "event", static_cast<size_t>(program_.events));
      } else if (what == "call") {
        step.what = Do::kCall;
        step.function = String(Field(object, "function"), "function");
        for (const auto& arg : Array(Field(object, "args"), "args")) step.args.push_back(ReadViewFor(arg, processor));
        step.outputs = Index(Field(object, "outputs"), "outputs", step.args.size() + 1);
      } else if (what == "copy") {
        step.what = Do::kCopy;
        step.args = {ReadViewFor(Field(object, "from"), processor), ReadViewFor(Field(object, "to"), processor)};
        if (step.args[0].bytes != step.args[1].bytes) Fail("a copy between different sizes");
      } else if ((what == "to_gpu" || what == "to_cpu") && processor == Processor::kGpu) {
        step.what = what == "to_gpu" ? Do::kToGpu : Do::kToCpu;
        step.args = {ReadView(Field(object, "view"))};
        if (program_.buffers[static_cast<size_t>(step.args[0].buffer)].space != Space::kShared) {
          Fail("a transfer of a buffer that is not shared");
        }
      } else {
        Fail("unknown step " + what);
      }
      steps->push_back(std::move(step));
    }
  }

  void ReadPorts(const picojson::array& list, std::vector<Port>* ports) {
    for (const auto& value : list) {
      const auto& object = Object(value, "port");
      Port port{String(Field(object, "name"), "port name"), ReadView(Field(object, "view"))};
      if (program_.buffers[static_cast<size_t>(port.view.buffer)].space == Space::kGpu) {
        Fail("an input or output that the CPU cannot reach");
      }
      ports->push_back(std::move(port));
    }
  }

  // Numbers the blocks from 0; a buffer without a block gets one of its own.
  void NumberBlocks() {
    std::map<int, std::pair<int, Space>> named;
    for (Buffer& buffer : program_.buffers) {
      if (buffer.block < 0) {
        buffer.block = program_.blocks++;
        continue;
      }
      const auto [it, fresh] = named.try_emplace(buffer.block, program_.blocks, buffer.space);
      if (fresh) ++program_.blocks;
      if (it->second.second != buffer.space) Fail("a block in two spaces");
      buffer.block = it->second.first;
    }
    // Weights, inputs and outputs keep their values from one run to the next.
    std::vector<int> held(static_cast<size_t>(program_.blocks), 0);
    for (const Buffer& buffer : program_.buffers) ++held[static_cast<size_t>(buffer.block)];
    auto check = [&](int index) {
      const Buffer& buffer = program_.buffers[static_cast<size_t>(index)];
      if (buffer.at != 0 || buffer.common >= 0 || held[static_cast<size_t>(buffer.block)] != 1) {
        Fail("a weight, input or output that shares its memory");
      }
    };
    for (const Weight& weight : program_.weights) check(weight.buffer);
    for (const auto* ports : {&program_.inputs, &program_.outputs}) {
      for (const Port& port : *ports) check(port.view.buffer);
    }
  }

  // Simulates both lists: every wait must find its signal, and the order gives the limits of feeding.
  void PlanFeeding() {
    const auto events = static_cast<size_t>(program_.events);
    const auto find_signals = [events](const std::vector<Step>& steps) {
      std::vector<size_t> where(events, kNowhere);
      for (size_t i = 0; i < steps.size(); ++i) {
        if (steps[i].what != Do::kSignal) continue;
        auto& slot = where[static_cast<size_t>(steps[i].event)];
        if (slot != kNowhere) Fail("an event signalled twice");
        slot = i;
      }
      return where;
    };
    std::vector<char> awaited(events, 0);
    for (const std::vector<Step>* steps : {&program_.cpu, &program_.gpu}) {
      for (const Step& step : *steps) {
        if (step.what != Do::kWait) continue;
        if (awaited[static_cast<size_t>(step.event)]++ != 0) Fail("an event awaited twice");
      }
    }
    const std::vector<size_t> cpu_signal = find_signals(program_.cpu), gpu_signal = find_signals(program_.gpu);

    // The GPU list may be enqueued up to the first wait for a CPU signal more than kSignalsAhead ahead.
    std::vector<size_t> signals_before(program_.cpu.size() + 1, 0);
    for (size_t i = 0; i < program_.cpu.size(); ++i) {
      signals_before[i + 1] = signals_before[i] + (program_.cpu[i].what == Do::kSignal ? 1 : 0);
    }
    program_.feed_until.assign(program_.cpu.size() + 1, program_.gpu.size());
    size_t reach = 0;
    for (size_t i = 0; i <= program_.cpu.size(); ++i) {
      while (reach < program_.gpu.size()) {
        const Step& step = program_.gpu[reach];
        if (step.what == Do::kWait) {
          const size_t at = cpu_signal[static_cast<size_t>(step.event)];
          if (at == kNowhere) Fail("the GPU list waits for an event that nobody signals");
          if (signals_before[at] >= signals_before[i] + kSignalsAhead) break;
        }
        ++reach;
      }
      program_.feed_until[i] = reach;
      if (i == program_.cpu.size()) break;
      const Step& step = program_.cpu[i];
      if (step.what == Do::kWait) {
        const size_t at = gpu_signal[static_cast<size_t>(step.event)];
        if (at == kNowhere) Fail("the CPU list waits for an event that nobody signals");
        // Everything up to that signal must be enqueued, and must not itself wait for a later CPU signal.
        for (size_t j = 0; j <= at; ++j) {
          const Step& before = program_.gpu[j];
          if (before.what == Do::kWait && cpu_signal[static_cast<size_t>(before.event)] >= i) {
            Fail("the two lists wait for each other");
          }
        }
        reach = std::max(reach, at + 1);
        program_.feed_until[i] = reach;
      }
    }
  }

  Program program_;
};

}  // namespace

Program Program::Parse(const picojson::value& json) { return Parser().Read(json); }

}  // namespace tvm_codl
