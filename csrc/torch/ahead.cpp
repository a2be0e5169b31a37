#include "torch/ahead.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "torch/launch.h"

namespace losscli {
namespace {

using at::Tensor;

// Calls of a group that may wait for their backward at once, each with its own expectation; others
// go without.
constexpr size_t kMostPlaces = 64;

// Groups that are remembered. Beyond, the ones used longest ago are forgotten: a module that is
// made anew for every step makes a group for every step.
constexpr size_t kMostGroups = 1024;

// The definition of the loss, the stream, the site, the reduction, the dtype, and the device.
using Key = std::tuple<const void*, void*, int64_t, Reduction, at::ScalarType, int>;

struct Place {
  Expectation* expectation;
  const volatile int32_t* doubted;
  bool taken;
};

struct Group {
  const Runtime* runtime;  // null on the CPU
  uint64_t last_used;
  std::vector<Place> places;
};

struct Groups {
  std::mutex mutex;
  uint64_t clock = 0;
  std::map<Key, Group> all;

  // With the lock held. Forgets the half of the groups that was used longest ago, those in use
  // excepted.
  void forget_old() {
    std::vector<uint64_t> ages;
    for (const auto& entry : all) ages.push_back(entry.second.last_used);
    std::nth_element(ages.begin(), ages.begin() + ages.size() / 2, ages.end());
    const uint64_t newer = ages[ages.size() / 2];
    for (auto entry = all.begin(); entry != all.end();) {
      Group& group = entry->second;
      const bool taken = std::any_of(group.places.begin(), group.places.end(),
                                     [](const Place& place) { return place.taken; });
      if (taken || group.last_used >= newer) {
        ++entry;
        continue;
      }
      for (const Place& place : group.places) {
        if (group.runtime)
          group.runtime->give_back(place.expectation);
        else
          delete place.expectation;
      }
      entry = all.erase(entry);
    }
  }
};

// Never destroyed: graphs of autograd may outlive static objects.
Groups& groups() {
  static Groups& one = *new Groups;
  return one;
}

uint64_t capture_of(const at::Device& device, void* stream) {
  const Runtime* const runtime = device.is_cpu() ? nullptr : runtime_for(device);
  return runtime ? runtime->capture(stream) : 0;
}

}  // namespace

void SeenOperands::remember(TensorList operands) {
  // Looking at sizes that a compiler keeps open would make it compile for these alone.
  for (const Tensor& operand : operands)
    if (operand.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) return;
  for (const Tensor& operand : operands) {
    Seen& seen = seen_.emplace_back();
    if (!operand.defined()) continue;
    const auto sizes = operand.sizes();
    seen.sizes.assign(sizes.begin(), sizes.end());
    seen.type = operand.scalar_type();
  }
}

void SeenOperands::note(TensorList operands) {
  for (size_t k = 0; k < operands.size(); ++k) {
    if (!operands[k].defined()) continue;
    const auto strides = operands[k].strides();
    seen_[k].strides.assign(strides.begin(), strides.end());
    seen_[k].data = operands[k].const_data_ptr();
  }
}

void SeenOperands::check_shapes(const Definition& loss, TensorList operands) const {
  for (size_t k = 0; k < seen_.size(); ++k)
    TORCH_CHECK(!operands[k].defined() || operands[k].sizes() == at::IntArrayRef(seen_[k].sizes),
                loss.name, ": ", loss.operand_names[k], " had the shape ",
                at::IntArrayRef(seen_[k].sizes), " when the loss was computed, but has the shape ",
                operands[k].sizes(), " in backward; do not assign to its .data in between");
}

bool SeenOperands::are(TensorList operands) const {
  for (size_t k = 0; k < operands.size(); ++k) {
    if (!operands[k].defined()) continue;
    const Seen& seen = seen_[k];
    if (operands[k].const_data_ptr() != seen.data || operands[k].scalar_type() != seen.type ||
        operands[k].strides() != at::IntArrayRef(seen.strides))
      return false;
  }
  return true;
}

ExpectationLease::ExpectationLease(const Call& call, at::ScalarType type, const at::Device& device,
                                   void* stream, bool captured) {
  const Runtime* const runtime = runtime_for(device);
  if (!device.is_cpu() && !runtime) return;
  if (captured) {
    // The graph's own, for as long as it lives.
    expectation_ = runtime->expectation(stream);
    return;
  }
  const Key key(call.loss, stream, call.site, call.reduction, type,
                device.is_cpu() ? -1 : device.index());
  Groups& known = groups();
  const std::lock_guard<std::mutex> lock(known.mutex);
  auto found = known.all.find(key);
  if (found == known.all.end()) {
    if (known.all.size() >= kMostGroups) known.forget_old();
    found = known.all.emplace(key, Group{runtime, 0, {}}).first;
  }
  Group& group = found->second;
  group.last_used = ++known.clock;
  const auto free = std::find_if(group.places.begin(), group.places.end(),
                                 [](const Place& place) { return !place.taken; });
  place_ = free - group.places.begin();
  if (free == group.places.end()) {
    if (group.places.size() == kMostPlaces) return;
    Expectation* const fresh = runtime ? runtime->expectation(stream) : new Expectation;
    if (!fresh) return;
    group.places.push_back({fresh, runtime ? runtime->doubted(fresh) : nullptr, false});
  }
  group.places[place_].taken = true;
  expectation_ = group.places[place_].expectation;
  doubted_ = group.places[place_].doubted;
  group_ = &group;
}

ExpectationLease& ExpectationLease::operator=(ExpectationLease&& other) noexcept {
  end();
  expectation_ = std::exchange(other.expectation_, nullptr);
  doubted_ = std::exchange(other.doubted_, nullptr);
  group_ = std::exchange(other.group_, nullptr);
  place_ = other.place_;
  return *this;
}

void ExpectationLease::end() {
  expectation_ = nullptr;
  doubted_ = nullptr;
  if (!group_) return;
  const std::lock_guard<std::mutex> lock(groups().mutex);
  static_cast<Group*>(std::exchange(group_, nullptr))->places[place_].taken = false;
}

void Turn::begin(const Call& call, at::ScalarType type, const at::Device& device) {
  const c10::DeviceGuard guard(device);
  stream_ = current_stream(device);
  capture_ = capture_of(device, stream_);
  lease_ = ExpectationLease(call, type, device, stream_, capture_ != 0);
}

ExpectationLease Turn::take(const at::Device& device) {
  if (!lease_.get()) return {};
  ExpectationLease lease = std::move(lease_);
  const c10::DeviceGuard guard(device);
  void* const stream = current_stream(device);
  // A graph that is captured now may be replayed after other calls have had the expectation, unless
  // it is the graph's own.
  taken_capture_ = capture_of(device, stream);
  const bool in_order = stream == stream_ && (taken_capture_ == 0) == (capture_ == 0);
  return in_order ? std::move(lease) : ExpectationLease();
}

void Turn::gave_out(const Call& call, const ExpectationLease& lease,
                    const at::Device& device) const {
  if (taken_capture_ == 0) return;
  // A replay of backward alone must not take what an earlier replay has handed out.
  const c10::DeviceGuard guard(device);
  const Status status = runtime_for(device)->forget(lease.get(), stream_);
  TORCH_CHECK(status.ok(), call.name(), ": ", status.message);
}

}  // namespace losscli
