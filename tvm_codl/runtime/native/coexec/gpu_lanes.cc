// Where memories are two: which queue each command goes to, and what of the other queues it waits for.
//
// The list's writer has placed tensors for one queue in order: a step may overwrite what only earlier steps need.  Here
// a command waits for those earlier ones of other queues that touch the same bytes of the GPU's memory.  Of the CPU's
// memory transfers touch what CPU steps do: a transfer waits for the CPU's events before it, and an event for the CPU
// is everything before it.
#include <algorithm>

#include "gpu_list.h"

namespace tvm_codl {

namespace {

constexpr size_t kNone = SIZE_MAX;

// Bytes of the GPU's memory.
struct Range {
  cl_mem mem = nullptr;
  int64_t begin = 0;
  int64_t end = 0;
  bool written = false;
  bool Overlaps(const Range& other) const { return mem == other.mem && begin < other.end && other.begin < end; }
};

// `command`, or the one found before: queues are in order, so the later one covers the earlier.
void Keep(size_t command, size_t* latest) {
  if (*latest == kNone || command > *latest) *latest = command;
}

}  // namespace

void GpuList::OrderLanes() {
  const auto ranges_of = [this](size_t index) {
    const Step& step = program_.gpu[index];
    const size_t outputs = step.what == Do::kCall ? static_cast<size_t>(step.outputs) : 1;
    std::vector<Range> ranges;
    for (size_t i = 0; i < step.args.size(); ++i) {
      const View& view = step.args[i];
      const int64_t begin = memory_->Offset(view);
      ranges.push_back({memory_->Parent(view), begin, begin + view.bytes, i + outputs >= step.args.size()});
    }
    return ranges;
  };
  struct Earlier {
    size_t command;
    std::vector<Range> ranges;
  };
  std::array<std::vector<Earlier>, kLanes> earlier;
  // By lane: its last command, and the last one of each other lane that it has waited for.
  std::array<size_t, kLanes> ends, none;
  ends.fill(kNone);
  none.fill(kNone);
  std::array<std::array<size_t, kLanes>, kLanes> known;
  known.fill(none);
  std::array<std::vector<size_t>, kLanes> releases;  // the CPU's events since the lane's last command

  const auto wait_for = [&](Command* command, Lane lane, size_t before) {
    size_t& seen = known[static_cast<size_t>(command->lane)][static_cast<size_t>(lane)];
    if (before == kNone || (seen != kNone && before <= seen)) return;
    seen = before;
    command->after.push_back(before);
    commands_[before].awaited = true;
  };
  const auto last_overlap = [&](Lane lane, const std::vector<Range>& ranges, bool only_writes) {
    size_t latest = kNone;
    for (const Earlier& other : earlier[static_cast<size_t>(lane)]) {
      for (const Range& a : ranges) {
        if (only_writes && !a.written) continue;
        for (const Range& b : other.ranges) {
          if (a.Overlaps(b)) Keep(other.command, &latest);
        }
      }
    }
    return latest;
  };
  // The end of everything before, for what the CPU reads: kernels, and uploads that no kernel has waited for.
  const auto wait_for_all = [&](Command* command) {
    wait_for(command, Lane::kKernels, ends[static_cast<size_t>(Lane::kKernels)]);
    const size_t uploads = ends[static_cast<size_t>(Lane::kToGpu)];
    const size_t consumed = known[static_cast<size_t>(Lane::kKernels)][static_cast<size_t>(Lane::kToGpu)];
    if (uploads != consumed) wait_for(command, Lane::kToGpu, uploads);
  };

  for (size_t i = 0; i < commands_.size(); ++i) {
    Command& command = commands_[i];
    if (command.type == Command::Type::kWait) {
      for (auto& events : releases) events.push_back(command.index);
      continue;
    }
    if (command.type == Command::Type::kSignal) {
      // After a download it is that one's end, which is the end of everything before.
      const bool bare =
          ends[static_cast<size_t>(Lane::kToGpu)] == kNone && ends[static_cast<size_t>(Lane::kToCpu)] == kNone;
      const bool behind =
          i > 0 && commands_[i - 1].type != Command::Type::kWait && commands_[i - 1].type != Command::Type::kSignal;
      command.rides = behind && (bare || commands_[i - 1].lane == Lane::kToCpu);
      if (command.rides) continue;
      command.lane = Lane::kToCpu;
      wait_for_all(&command);
    } else {
      const std::vector<Range> ranges = ranges_of(command.step);
      if (command.type != Command::Type::kTransfer) {
        wait_for(&command, Lane::kToGpu, last_overlap(Lane::kToGpu, ranges, false));
        wait_for(&command, Lane::kToCpu, last_overlap(Lane::kToCpu, ranges, true));
      } else if (program_.gpu[command.step].what == Do::kToGpu) {
        command.lane = Lane::kToGpu;
        wait_for(&command, Lane::kKernels, last_overlap(Lane::kKernels, ranges, false));
        wait_for(&command, Lane::kToCpu, last_overlap(Lane::kToCpu, ranges, false));
      } else {
        command.lane = Lane::kToCpu;
        wait_for_all(&command);
      }
      earlier[static_cast<size_t>(command.lane)].push_back({i, ranges});
    }
    const auto lane = static_cast<size_t>(command.lane);
    ends[lane] = i;
    if (command.lane != Lane::kKernels) command.releases = std::exchange(releases[lane], {});
  }
  size_t most = 1;
  for (const Command& command : commands_) most = std::max(most, command.after.size() + command.releases.size());
  waits_.reserve(most + 1);
  for (size_t end : ends) {
    if (end == kNone) continue;
    commands_[end].awaited = true;
    lane_ends_.push_back(end);
  }
}

}  // namespace tvm_codl
