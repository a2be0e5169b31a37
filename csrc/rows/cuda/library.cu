// The library of a loss over rows on CUDA:
//
//   rows.dtype.cu   once for each floating dtype, with -DLOSSCLI_DTYPE=float32, float64, float16
//                   and bfloat16: the kernels
//   library.cu      once: this file, which chooses
#include "core/cuda/memory.cuh"
#include "core/operand.h"
#include "rows/cross_entropy.h"
#include "rows/cuda/instance.h"

namespace losscli::cuda {
namespace {

// Whether logits and gradients of each row lie alike in lines of 16 bytes.
bool lie_alike(const RowArguments& arguments) {
  if (!arguments.gradients[0]) return true;
  const int64_t item = item_bytes(arguments.dtype);
  const int64_t steps = arguments.gradient_strides[0].outer - arguments.strides[0].outer;
  const auto from = reinterpret_cast<uintptr_t>(arguments.operands[0]);
  const auto to = reinterpret_cast<uintptr_t>(arguments.gradients[0]);
  return (to - from) % 16 == 0 && (arguments.rows() <= 1 || steps * item % 16 == 0);
}

// Whether the kernels that read a row once can bend its logits.
bool can_bend(const RowArguments& arguments) {
  const double inside = arguments.parameters[kTemperature] * arguments.parameters[kSoftcap];
  return arguments.parameters[kSoftcap] <= kMostCap && inside >= 1e-30 && inside <= 1e30;
}

// What the kernels that read a row once can do.
bool has_kernels(const RowArguments& arguments) {
  // The gradient of one class is exactly 0, and so are its shares of the loss.
  const bool smoothed = arguments.parameters[kLabelSmoothing] != 0;
  if (smoothed && (arguments.weight || arguments.length == 1)) return false;
  if (arguments.parameters[kSoftcap] != 0 && !can_bend(arguments)) return false;
  return arguments.dtype != DType::float64 && !arguments.operands[1] && arguments.length > 0;
}

// Whether classes are neighbours in memory.
bool is_of_lines(const RowArguments& arguments) {
  return arguments.inner == 1 && (arguments.strides[0].element == 1 || arguments.length == 1) &&
         (arguments.gradient_strides[0].element == 1 || arguments.length == 1 ||
          !arguments.gradients[0]) &&
         arguments.length < int64_t{1} << 30 && lie_alike(arguments);
}

// The shape of a block of rows whose classes are apart, if all of them fit.
bool choose_columns(const RowArguments& arguments, RowPolicy& policy) {
  const int64_t item = item_bytes(arguments.dtype), inner = arguments.inner;
  const RowStrides& strides = arguments.strides[0];
  // Into the same place of each row of the outer dimension, and of each class.
  const auto are_lines = [&](int64_t bytes) {
    const int64_t apart = inner > 1 ? strides.inner : strides.outer;
    const int64_t rows = inner > 1 ? inner : arguments.outer;
    return apart == 1 && reinterpret_cast<uintptr_t>(arguments.operands[0]) % bytes == 0 &&
           rows * item % bytes == 0 && strides.element * item % bytes == 0 &&
           (inner == 1 || strides.outer * item % bytes == 0);
  };
  ColumnShape& shape = policy.columns;
  shape.copy_bytes = static_cast<int>(are_lines(16) ? 16 : are_lines(4) || item == 4 ? 4 : 2);
  if (arguments.length >= int64_t{1} << 20) return false;
  // Few rows to a block, so that all multiprocessors have some; and two blocks to each of them.
  shape.columns = kMostColumns;
  const auto bytes = [&] { return shape.bytes(arguments.length, item); };
  while (shape.columns * item > 2 * kLeastColumnBytes &&
         (arguments.rows() < shape.columns * kColumnBlocks || bytes() > kColumnBytes / 2))
    shape.columns /= 2;
  while (shape.columns * item > kLeastColumnBytes && bytes() > kColumnBytes) shape.columns /= 2;
  // A thread for each row, unless these are too few threads.
  const int blocks = bytes() > 0 && kColumnBytes / bytes() < 32 ? kColumnBytes / bytes() : 32;
  shape.threads = shape.columns < 32 ? 32 : shape.columns;
  while (shape.threads * blocks < kColumnThreads && shape.threads < kMostColumnThreads &&
         shape.threads * 4 < shape.columns * arguments.length)
    shape.threads *= 2;
  policy.access = RowAccess::columns;
  return bytes() <= kColumnBytes;
}

// Teams of warps, if rows fit.
bool choose_team(const RowArguments& arguments, bool whole, RowPolicy& policy) {
  const int64_t bytes = arguments.length * item_bytes(arguments.dtype) / 16 * 16;
  if (bytes < kLeastTeamBytes) return false;
  for (const TeamPolicy& team : kTeams) {
    if (bytes <= team.bytes()) {
      policy.access = RowAccess::teams;
      policy.team = static_cast<int>(&team - kTeams);
      policy.warps = team_warps(team.vectors);
      policy.whole = whole;
      const int64_t part = divide_up(divide_up(bytes, int64_t{team.warps}), int64_t{16}) * 16;
      policy.slots.slot_bytes = static_cast<int>(part);
      const int64_t slots = kRingBytes / policy.warps / (part + 8);
      policy.slots.slots = static_cast<int>(slots < kMostTeamSlots ? slots : kMostTeamSlots);
      return slots > 0;
    }
  }
  return false;
}

// The shape of a ring for clusters of so many blocks, if rows fit.
bool choose_ring(const RowArguments& arguments, int cluster, RowPolicy& policy) {
  // One more, where a row begins within a line.
  const int64_t lines = arguments.length * item_bytes(arguments.dtype) / 128 + 2;
  int64_t fewest = 0;
  const int least = arguments.gradients[0] ? kLeastWarps : kLeastForwardWarps;
  for (int warps = least; warps <= kMostRingWarps; ++warps) {
    const int64_t most = kRingBytes / warps / 128;  // lines of a warp's ring
    const int64_t piece_lines = divide_up(lines, int64_t{cluster} * warps);
    const int64_t piece_slots = divide_up(piece_lines, 4 * kSlotVectors);
    const int64_t slot_lines = divide_up(piece_lines, piece_slots);
    int64_t slots = most / slot_lines;
    // With gradients a ring holds a piece, and a part of the next.
    if (slots < (arguments.gradients[0] ? piece_slots + 1 : 1)) continue;
    if (slots > 2 * piece_slots) slots = 2 * piece_slots;
    const int64_t vectors = warps * piece_slots;
    if (slots > 32 || (fewest && vectors > fewest)) continue;
    fewest = vectors;
    policy.access = RowAccess::ring;
    policy.cluster = cluster;
    policy.ring.warps = warps;
    policy.ring.piece_slots = static_cast<int>(piece_slots);
    policy.ring.slot_bytes = static_cast<int>(slot_lines * 128);
    policy.ring.slots = static_cast<int>(slots);
  }
  return fewest > 0;
}

RowPolicy choose(const RowArguments& arguments, const DeviceFacts& facts) {
  RowPolicy policy;
  if (!has_kernels(arguments)) return policy;
  if (is_of_lines(arguments))
    policy = policy_of(arguments, facts.clusters);
  else if (!choose_columns(arguments, policy))
    return policy;
  policy.mode = arguments.parameters[kSoftcap] != 0          ? RowMode::capped
                : arguments.parameters[kLabelSmoothing] != 0 ? RowMode::smoothed
                                                             : RowMode::plain;
  return policy;
}

const RowInstance& instance_of(const RowArguments& arguments) {
  switch (arguments.dtype) {
    case DType::float64:
      return rows_float64;
    case DType::float16:
      return rows_float16;
    case DType::bfloat16:
      return rows_bfloat16;
    default:
      return rows_float32;
  }
}

Needs needs(const RowArguments& arguments, const DeviceFacts&) {
  Needs needs;
  needs.workspace = instance_of(arguments).workspace(arguments);
  needs.slot = true;
  return needs;
}

Status run(const RowArguments& arguments, const LaunchContext& context) {
  return instance_of(arguments).launch(arguments, choose(arguments, context.device), context);
}

const RowKernels kernels{kInterface, 2, 5, needs, run};

}  // namespace

RowPolicy policy_of(const RowArguments& arguments, bool clusters) {
  RowPolicy policy;
  const int64_t bytes = arguments.length * item_bytes(arguments.dtype);
  // Only whole vectors, which begin at multiples of 16 bytes.
  const bool whole = reinterpret_cast<uintptr_t>(arguments.operands[0]) % 16 == 0 &&
                     bytes % 16 == 0 &&
                     arguments.strides[0].outer * item_bytes(arguments.dtype) % 16 == 0;
  if (clusters && arguments.rows() < int64_t{1} << 30 && choose_team(arguments, whole, policy))
    return policy;
  for (const RegistersPolicy& registers : kRegisters)
    if (bytes <= registers.bytes() && (whole || registers.threads >= 32)) {
      policy.access = RowAccess::registers;
      policy.threads = registers.threads;
      policy.vectors = registers.vectors;
      return policy;
    }
  if (!clusters || arguments.rows() >= int64_t{1} << 30) return policy;
  for (int cluster = 1; cluster <= 8; cluster *= 2)
    if (choose_ring(arguments, cluster, policy)) return policy;
  return RowPolicy();
}

}  // namespace losscli::cuda

LOSSCLI_EXPORT const losscli::RowKernels* losscli_row_kernels() { return &losscli::cuda::kernels; }
