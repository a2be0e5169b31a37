#include "torch/ahead.h"

#include <c10/core/DeviceGuard.h>

#include <utility>

#include "torch/registry.h"
#include "torch/stream.h"

namespace losscli {
namespace {

using at::Tensor;

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
