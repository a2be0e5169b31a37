// Which walk takes the rows of a call: teams of warps, registers, rings and columns for cross
// entropy of class indices, slots for rows that lie alike, and the general walk for all others.
#pragma once

#include "core/cuda/memory.cuh"
#include "core/operand.h"
#include "rows/cuda/launch.h"
#include "rows/cuda/pack.cuh"
#include "rows/cuda/policies.h"

namespace losscli::cuda {

// Whether the rows of so many operands, and of their gradients, begin at the same place of 16
// bytes, so that vectors of one are vectors of all.
inline bool lie_alike(const RowArguments& arguments, int operands) {
  const auto first = reinterpret_cast<uintptr_t>(arguments.operands[0]);
  const auto lies_so = [&](const void* data, const RowStrides& strides) {
    const int64_t steps = strides.outer - arguments.strides[0].outer;
    return (strides.element == 1 || arguments.length == 1) &&
           (reinterpret_cast<uintptr_t>(data) - first) % kPackBytes == 0 &&
           (arguments.rows() == 1 || steps * item_bytes(arguments.dtype) % kPackBytes == 0);
  };
  for (int k = 0; k < operands; ++k) {
    if (!lies_so(arguments.operands[k], arguments.strides[k])) return false;
    if (arguments.gradients[k] && !lies_so(arguments.gradients[k], arguments.gradient_strides[k]))
      return false;
  }
  return true;
}

// Whether slots and groups take rows of so many operands.
inline bool lie_in_vectors(const RowArguments& arguments, int operands, const DeviceFacts& device) {
  const int64_t bytes = arguments.length * item_bytes(arguments.dtype);
  return device.clusters && arguments.inner == 1 && arguments.rows() < int64_t{1} << 30 &&
         bytes >= kLeastSlotRowBytes && bytes < int64_t{1} << 30 && lie_alike(arguments, operands);
}

// Whether the walks of cross entropy can bend its logits.
inline bool can_bend(const RowArguments& arguments) {
  const double inside = arguments.parameters[kTemperature] * arguments.parameters[kSoftcap];
  return arguments.parameters[kSoftcap] <= kMostCap && inside >= 1e-30 && inside <= 1e30;
}

// What the walks of cross entropy can do.
inline bool has_walks(const RowArguments& arguments) {
  // The gradient of one class is exactly 0, and so are its shares of the loss.
  const bool smoothed = arguments.parameters[kLabelSmoothing] != 0;
  if (smoothed && (arguments.weight || arguments.length == 1)) return false;
  if (arguments.parameters[kSoftcap] != 0 && !can_bend(arguments)) return false;
  return arguments.dtype != DType::float64 && arguments.length > 0 &&
         arguments.length < int64_t{1} << 30;
}

// Whether rows are whole vectors, which begin at multiples of 16 bytes.
inline bool is_whole(const RowArguments& arguments) {
  const int64_t item = item_bytes(arguments.dtype);
  return reinterpret_cast<uintptr_t>(arguments.operands[0]) % 16 == 0 &&
         arguments.length * item % 16 == 0 && arguments.strides[0].outer * item % 16 == 0;
}

// Whether rows of lines are so short that many of them in a block are faster.
inline bool are_short(const RowArguments& arguments) {
  const int64_t bytes = arguments.length * item_bytes(arguments.dtype);
  if (bytes > kMostLineBytes || arguments.inner > 1) return false;
  return arguments.length == 1 ||
         (arguments.strides[0].element == 1 &&
          (!arguments.gradients[0] || arguments.gradient_strides[0].element == 1));
}

// How short rows lie in shared memory, with an odd number of units from each to the next. They are
// copied in vectors, each by itself if it has whole ones, or else all of them as one block.
inline void choose_lines(const RowArguments& arguments, ColumnShape& shape) {
  const int64_t item = item_bytes(arguments.dtype), bytes = arguments.length * item;
  const bool whole = bytes % 16 == 0;
  const auto lies_so = [&](const void* data, const RowStrides& strides) {
    return reinterpret_cast<uintptr_t>(data) % 16 == 0 &&
           (whole ? strides.outer * item % 16 == 0 : strides.outer == arguments.length);
  };
  const bool straight =
      lies_so(arguments.operands[0], arguments.strides[0]) &&
      (!arguments.gradients[0] || lies_so(arguments.gradients[0], arguments.gradient_strides[0]));
  const int64_t unit = !straight ? item : whole ? 16 : bytes % 8 == 0 ? 8 : item;
  const int64_t line = !straight ? divide_up(bytes, 4) * 4 | 4 : whole ? bytes | 16 : bytes;
  shape.copy_bytes = static_cast<int>(straight ? 16 : item);
  shape.unit = static_cast<int>(unit / item);
  shape.line = static_cast<int>(line / item);
  shape.pitch = 1;
}

// The shape of a block of rows whose classes are apart, or of lines, if all of them fit.
inline bool choose_columns(const RowArguments& arguments, const DeviceFacts& facts, bool are_lines,
                           RowPolicy& policy) {
  const int64_t item = item_bytes(arguments.dtype), inner = arguments.inner;
  const RowStrides& strides = arguments.strides[0];
  const int64_t next = inner > 1 ? strides.inner : strides.outer;
  if (!are_lines && (next < 0 || next >= strides.element)) return false;
  // Into the same place of each row of the outer dimension, and of each class.
  const auto are_packs = [&](int64_t bytes) {
    return next == 1 && reinterpret_cast<uintptr_t>(arguments.operands[0]) % bytes == 0 &&
           (inner > 1 ? inner : arguments.outer) * item % bytes == 0 &&
           strides.element * item % bytes == 0 && (inner == 1 || strides.outer * item % bytes == 0);
  };
  ColumnShape& shape = policy.columns;
  shape.copy_bytes = static_cast<int>(are_packs(16) ? 16 : are_packs(4) || item == 4 ? 4 : 2);
  // Few rows to a block, so that all multiprocessors have some; and two blocks to each of them.
  shape.columns = kMostColumns;
  if (are_lines) choose_lines(arguments, shape);
  const auto bytes = [&] {
    if (!are_lines) shape.pitch = shape.columns;
    return shape.bytes(arguments.length, item);
  };
  const int64_t most = facts.clusters ? kColumnBytes : kOlderColumnBytes;
  while (shape.columns * item > 2 * kLeastColumnBytes &&
         (arguments.rows() < int64_t{shape.columns} * kColumnBlocks || bytes() > most / 2))
    shape.columns /= 2;
  while (shape.columns * item > kLeastColumnBytes && bytes() > most) shape.columns /= 2;
  if (bytes() > most) return false;
  // A thread for each row, unless these are too few threads.
  const int64_t blocks = least(most / bytes(), 32);
  const int64_t enough = are_lines ? kColumnThreads / 2 : kColumnThreads;
  shape.threads = shape.columns < 32 ? 32 : shape.columns;
  while (shape.threads * blocks < enough && shape.threads < kMostColumnThreads &&
         shape.threads * int64_t{4} < shape.columns * arguments.length)
    shape.threads *= 2;
  policy.access = RowAccess::columns;
  return true;
}

// Teams of warps, if rows fit.
inline bool choose_team(const RowArguments& arguments, bool whole, RowPolicy& policy) {
  const int64_t bytes = arguments.length * item_bytes(arguments.dtype) / 16 * 16;
  if (bytes < kLeastTeamBytes) return false;
  for (const RowGroup& team : kTeams)
    if (bytes <= team.bytes()) {
      policy.access = RowAccess::teams;
      policy.entry = static_cast<int>(&team - kTeams);
      policy.whole = whole;
      const int64_t part = divide_up(bytes, int64_t{team.threads / 32} * 16) * 16;
      policy.slots.slot_bytes = static_cast<int>(part);
      const int64_t slots = kRingBytes / team_warps(team.vectors) / (part + 8);
      policy.slots.slots = static_cast<int>(least(slots, kMostTeamSlots));
      return slots > 0;
    }
  return false;
}

// The shape of a ring, if rows fit.
inline bool choose_ring(const RowArguments& arguments, RowMode mode, RowPolicy& policy) {
  // One more, where a row begins within a line.
  const int64_t lines = arguments.length * item_bytes(arguments.dtype) / 128 + 2;
  const bool has_gradient = arguments.gradients[0];
  int64_t fewest = 0;
  const auto try_shape = [&](int cluster, int warps, int entry) {
    const int vectors = kRingVectors[entry];
    const int64_t most = (warps <= kMostRingWarps / 2 ? kHalfRingBytes : kRingBytes) / warps;
    const int64_t piece_lines = divide_up(lines, int64_t{cluster} * warps);
    const int64_t piece_slots = divide_up(piece_lines, 4 * vectors);
    const int64_t slot_lines = divide_up(piece_lines, piece_slots);
    int64_t slots = most / (slot_lines * 128 + 8);
    // With gradients a ring holds a piece, and a part of the next.
    if (slots < (has_gradient ? piece_slots + 1 : 1) || slots > 32) return;
    slots = least(slots, has_gradient ? 2 * piece_slots : least(2 * piece_slots, kForwardSlots));
    const int64_t all = piece_slots * vectors * warps * cluster;
    // Slots of few vectors have a cost of their own.
    if (fewest && all * 100 >= fewest * 97) return;
    fewest = all;
    policy.access = RowAccess::ring;
    policy.entry = entry;
    policy.cluster = cluster;
    policy.ring.warps = warps;
    policy.ring.piece_slots = static_cast<int>(piece_slots);
    policy.ring.slot_bytes = static_cast<int>(slot_lines * 128);
    policy.ring.slots = static_cast<int>(slots);
  };
  // Of shapes that are as full the first: two blocks to a multiprocessor before one, and clusters
  // of few blocks.
  const struct {
    int cluster, warps;
  } kBlocks[] = {{1, 8}, {2, 8}, {1, 16}, {2, 16}, {4, 8}, {4, 16}, {8, 16}};
  for (const auto& blocks : kBlocks) {
    // Wider clusters only where rows do not fit otherwise.
    if (fewest && blocks.cluster > 2) break;
    if (!has_gradient && blocks.cluster * blocks.warps > 8) break;
    for (int k = sizeof kRingVectors / sizeof *kRingVectors; k-- > 0;)
      if (is_ring(mode, has_gradient, kRingVectors[k])) try_shape(blocks.cluster, blocks.warps, k);
  }
  return fewest > 0;
}

inline RowPolicy policy_of(const RowArguments& arguments, RowMode mode, const DeviceFacts& facts) {
  RowPolicy policy;
  const int64_t bytes = arguments.length * item_bytes(arguments.dtype);
  const bool whole = is_whole(arguments);
  const bool can_stay = facts.clusters && arguments.rows() < int64_t{1} << 30;
  // If so many threads have all rows.
  const auto choose_registers = [&](int64_t most_threads) {
    for (const RowGroup& group : kRegisters)
      if (bytes <= group.bytes() && (whole || group.threads >= 32)) {
        policy.access = RowAccess::registers;
        policy.entry = static_cast<int>(&group - kRegisters);
        return arguments.rows() * group.threads <= most_threads;
      }
    return false;
  };
  if (can_stay && arguments.gradients[0] && bytes >= kLeastRingBytes &&
      choose_ring(arguments, mode, policy))
    return policy;
  // Where all rows are on the device at once, none comes later that slots would have.
  if (choose_registers(facts.multiprocessors * int64_t{kRegistersThreads})) return policy;
  if (can_stay && choose_team(arguments, whole, policy)) return policy;
  if (choose_registers(int64_t{1} << 62)) return policy;
  if (can_stay && choose_ring(arguments, mode, policy)) return policy;
  return RowPolicy();
}

inline RowPolicy choose_once(const RowArguments& arguments, const DeviceFacts& facts) {
  RowPolicy policy;
  if (!has_walks(arguments)) return policy;
  const RowMode mode = arguments.parameters[kSoftcap] != 0          ? RowMode::capped
                       : arguments.parameters[kLabelSmoothing] != 0 ? RowMode::smoothed
                                                                    : RowMode::plain;
  if (are_short(arguments) && choose_columns(arguments, facts, true, policy)) {
    policy.mode = mode;
    return policy;
  }
  if (arguments.inner == 1 && lie_alike(arguments, 1))
    policy = policy_of(arguments, mode, facts);
  else if (!choose_columns(arguments, facts, false, policy))
    policy.access = RowAccess::general;
  policy.mode = mode;
  return policy;
}

// The fewest blocks whose shared memory holds a row; where rows are few, as many as read faster.
template <typename Loss, typename Stored>
GeneralPolicy choose_general(const RowArguments& arguments, bool again, const DeviceFacts& device) {
  GeneralPolicy policy;
  constexpr int kCount = PackedRow<Stored>::kCount;
  const int64_t packs = divide_up(arguments.length, kCount);
  const RowStrides& strides = arguments.strides[0];
  const int64_t next = arguments.inner > 1 ? strides.inner : strides.outer;
  const bool are_neighbours = arguments.rows() > 1 && next >= 0 && next < strides.element;
  if (are_neighbours || packs <= kColumnPacks) {
    policy.threads = kColumnTeam;
    const int64_t most = kColumnHeldBytes / (int64_t{Loss::rows} * kPackBytes * kWarpRowThreads);
    if (again) policy.resident = static_cast<int>(least(divide_up(packs, kColumnTeam), most));
    return policy;
  }
  policy.threads = packs <= kWarpPacks ? 32 : packs <= kSmallBlockPacks ? kSmallBlock : kLargeBlock;
  const int64_t most =
      kHeldBytes / (int64_t{Loss::rows} * kPackBytes * block_threads(policy.threads));
  const auto held = [&] { return divide_up(packs, int64_t{policy.threads} * policy.cluster); };
  if (policy.threads == kLargeBlock && device.clusters) {
    while (policy.cluster < 8 && again && held() > most) policy.cluster *= 2;
    while (policy.cluster < 8 && held() >= 2 * packs_ahead(Loss::rows) &&
           arguments.rows() * policy.cluster * 2 <= device.multiprocessors)
      policy.cluster *= 2;
  }
  if (again) policy.resident = static_cast<int>(least(held(), most));
  return policy;
}

// The shape of the slots of so many warps for a row, if they hold what they must.
template <typename Block, typename Loss, typename Stored>
bool fits(const RowArguments& arguments, bool again, int team, int cluster, SlotShape& shape) {
  constexpr int64_t kMostSlotBytes = int64_t{Block::kVectors} * 32 * kPackBytes;
  const int64_t bytes = arguments.length * int64_t{sizeof(Stored)};
  const int64_t warps = int64_t{team} * cluster;
  // Whole lines of memory where a warp has more than a few of them.
  const int64_t part = divide_up(bytes, warps), unit = part >= 1024 ? 128 : kPackBytes;
  const int64_t piece_slots = divide_up(part, kMostSlotBytes);
  const int64_t slot_bytes = divide_up(divide_up(part, piece_slots), unit) * unit;
  const int64_t slots =
      least(Block::kBytes / Block::kWarps / (Loss::rows * slot_bytes + 8), kMostSlots);
  shape.team = team;
  shape.cluster = cluster;
  shape.slots = static_cast<int>(slots);
  shape.slot_bytes = static_cast<int>(slot_bytes);
  shape.piece_slots = static_cast<int>(piece_slots);
  // A row that is read again is held, and the next while it is; of whole blocks, a part of the
  // next.
  const int64_t held = team == Block::kWarps ? piece_slots + 1 : 2 * piece_slots;
  return slots >= (again ? held : 2);
}

// The fewest warps whose slots hold a row; more of them where rows are few. Where a row is not
// held, the fewest that end at about the same time.
template <typename Loss, typename Stored>
bool choose_slots(const RowArguments& arguments, bool again, const DeviceFacts& device,
                  SlotShape& shape) {
  const int64_t bytes = arguments.length * int64_t{sizeof(Stored)}, rows = arguments.rows();
  if (!lie_in_vectors(arguments, Loss::rows, device)) return false;
  using Block = SlotBlock<Loss>;
  constexpr int kWarps = Block::kWarps;
  const int64_t most = int64_t{device.multiprocessors} * kWarps;
  shape.whole = is_whole(arguments);
  const auto is_enough = [&](int64_t warps) {
    if (bytes < 2 * warps * kLeastSlotRowBytes) return true;
    const int64_t turns = divide_up(rows * warps, most);
    return again || warps >= kWarps ? rows * warps * 2 > most
                                    : turns * most * 32 <= rows * warps * 33;
  };
  for (int warps = 1; warps <= kWarps * kMostCluster; warps *= 2) {
    const int team = warps < kWarps ? warps : kWarps;
    if (!fits<Block, Loss, Stored>(arguments, again, team, warps / team, shape)) continue;
    if (is_enough(warps) || warps == kWarps * kMostCluster) return true;
  }
  return false;
}

// How many lanes share a row in groups, if they take the rows.
template <typename Loss, typename Stored>
bool choose_groups(const RowArguments& arguments, bool again, bool has_own,
                   const DeviceFacts& device, SlotShape& shape) {
  const int64_t row = arguments.length * int64_t{sizeof(Stored)}, bytes = Loss::rows * row;
  const int64_t rows = arguments.rows(), each = divide_up(rows, device.multiprocessors);
  if (!lie_in_vectors(arguments, Loss::rows, device)) return false;
  shape.whole = is_whole(arguments);
  const bool many = each >= kManyRows, three = Loss::rows > 2;
  int64_t most = three ? 2 * kMostGroupBytes : kMostGroupBytes;
  if (again) {
    const bool few = row > 2 * kLeastSlotRowBytes && each <= kFewRows;
    shape.lanes = few ? kWideLanes : shape.whole && bytes <= kMostShortBytes ? 8 : 32;
    if (many) most = three ? kMostHeldBytes / 2 : kMostHeldBytes;
  } else {
    shape.lanes = (many && bytes <= most) || row <= 4 * kLeastSlotRowBytes ? 8 : kWideLanes;
  }
  const bool wide = shape.lanes == kWideLanes;
  if (wide) most = !many ? 2 * kMostGroupBytes : three ? kMostStreamBytes : 0;
  // Those of cross entropy may have walks that are faster.
  const bool is_plain =
      arguments.parameters[kSoftcap] == 0 && arguments.parameters[kLabelSmoothing] == 0;
  if (has_own && (again || wide || !is_plain || row <= kMostLineBytes)) return false;
  const int vectors = wide ? 1 : GroupBlock<Loss, 8, 0>::kVectors;
  const int64_t part = int64_t{16} * shape.lanes * vectors;
  shape.slots = again ? static_cast<int>(divide_up(row, part)) : kGroupSlots;
  return bytes <= most && (!again || wide || !Loss::shares);
}

// Whether there are walks of cross entropy of class indices.
template <typename Loss, typename Stored>
constexpr bool has_own_walks() {
  return Loss::is_cross_entropy && Loss::labelled && sizeof(Stored) <= 4;
}

template <typename Loss, typename Stored>
constexpr bool has_slots() {
  return Loss::reads && sizeof(Stored) <= 4;
}

// The walk for a loss, of which `again` says whether a pass after the first reads the rows.
template <typename Loss, typename Stored>
RowPolicy choose(const RowArguments& arguments, bool again, const DeviceFacts& device) {
  RowPolicy policy;
  constexpr bool kOwn = has_own_walks<Loss, Stored>();
  if constexpr (has_slots<Loss, Stored>())
    if (choose_groups<Loss, Stored>(arguments, again, kOwn, device, policy.parts)) {
      policy.access = RowAccess::groups;
      return policy;
    }
  if constexpr (kOwn) policy = choose_once(arguments, device);
  if constexpr (has_slots<Loss, Stored>())
    if (policy.access == RowAccess::general &&
        choose_slots<Loss, Stored>(arguments, again, device, policy.parts))
      policy.access = RowAccess::slots;
  // A thread takes a row alone of which it reads one element.
  if (Loss::reads || arguments.gradients[0])
    policy.general = choose_general<Loss, Stored>(arguments, again, device);
  return policy;
}

}  // namespace losscli::cuda
