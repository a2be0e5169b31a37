// One team of warps for each row: the row is read once and kept in shared memory where it fits,
// else it is read again for each pass.
//
// A thread touches the same classes in every pass, so that what it keeps in shared memory is for
// itself alone. All sums are made in one fixed order: results are the same from run to run.
#pragma once

#include <cstdint>

#include "core/cuda/memory.cuh"
#include "rowfunctors/row.h"
#include LOSSCLI_FUNCTOR_HEADER

namespace losscli::rowfunctors {

constexpr int kWarpSize = 32;
// A block of several teams has this many warps.
constexpr int kBlockWarps = 4;

template <int warps>
constexpr int kTeams = warps == 1 ? kBlockWarps : 1;

template <typename Real>
__device__ __forceinline__ Partition<Real> from_lane(const Partition<Real>& mine, int distance) {
  return {__shfl_xor_sync(~0u, mine.largest, distance), __shfl_xor_sync(~0u, mine.sum, distance)};
}
__device__ __forceinline__ float from_lane(float mine, int distance) {
  return __shfl_xor_sync(~0u, mine, distance);
}
__device__ __forceinline__ double from_lane(double mine, int distance) {
  return __shfl_xor_sync(~0u, mine, distance);
}

template <typename Real>
__device__ __forceinline__ void merge(Partition<Real>& mine, const Partition<Real>& other) {
  mine.merge(other);
}
__device__ __forceinline__ void merge(float& mine, float other) { mine += other; }
__device__ __forceinline__ void merge(double& mine, double other) { mine += other; }

// Merges what the threads of a team hold; each gets the same bits.
template <int warps, int count, typename Part>
__device__ __forceinline__ void merge_team(Part (&parts)[count]) {
#pragma unroll
  for (int k = 0; k < count; ++k)
#pragma unroll
    for (int distance = kWarpSize / 2; distance > 0; distance /= 2)
      merge(parts[k], from_lane(parts[k], distance));
  if constexpr (warps > 1) {
    // As bytes: a Part has a constructor, which shared memory cannot run.
    __shared__ alignas(16) unsigned char bytes[warps * count * sizeof(Part)];
    Part* const found = reinterpret_cast<Part*>(bytes);
    const int lane = threadIdx.x % kWarpSize;
    __syncthreads();  // the parts of the row before have been read
    if (lane == 0)
      for (int k = 0; k < count; ++k) found[threadIdx.x / kWarpSize * count + k] = parts[k];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < count; ++k) {
      parts[k] = found[lane % warps * count + k];
#pragma unroll
      for (int distance = warps / 2; distance > 0; distance /= 2)
        merge(parts[k], from_lane(parts[k], distance));
    }
  }
}

template <typename Stored, int warps, bool kPacked>
struct Team {
  using Real = RealOf<Stored>;
  using Loss = LOSSCLI_FUNCTOR<Real>;
  using Pack = cuda::Pack<Stored>;
  static constexpr int kOperands = Loss::kOperands;
  static constexpr int kCount = Pack::kCount;  // classes that a thread has at once
  static constexpr int kThreads = warps * kWarpSize;

  const Call& call;
  Loss loss;
  Real scale;
  Stored* kept;      // the team's shared memory, null where a row does not fit
  int64_t capacity;  // in elements, of each operand
  int thread;

  // Of element j of a thread's group.
  __device__ __forceinline__ int64_t place(int64_t group, int j) const {
    return kPacked ? (group * kThreads + thread) * kCount + j
                   : group * (kThreads * kCount) + j * kThreads + thread;
  }
  __device__ __forceinline__ int64_t groups() const {
    return (call.classes + kThreads * kCount - 1) / (kThreads * kCount);
  }
  __device__ __forceinline__ const Stored* start(int k, int64_t row) const {
    return static_cast<const Stored*>(call.operands[k]) + row * call.strides[k];
  }

  // A group as it is stored; -inf beyond the end.
  __device__ __forceinline__ Pack fetch(const Stored* from, int64_t group) const {
    Pack pack;
    if constexpr (kPacked) {
      const int64_t first = place(group, 0);
      if (first < call.classes) return *reinterpret_cast<const Pack*>(from + first);
#pragma unroll
      for (int j = 0; j < kCount; ++j) cuda::narrow(kLeast<Real>, pack.values[j]);
    } else {
#pragma unroll
      for (int j = 0; j < kCount; ++j) {
        const int64_t at = place(group, j);
        if (at < call.classes)
          pack.values[j] = from[at];
        else
          cuda::narrow(kLeast<Real>, pack.values[j]);
      }
    }
    return pack;
  }

  __device__ __forceinline__ void put(Stored* to, int64_t group, const Pack& pack) const {
    if constexpr (kPacked) {
      const int64_t first = place(group, 0);
      if (first < call.classes) *reinterpret_cast<Pack*>(to + first) = pack;
    } else {
#pragma unroll
      for (int j = 0; j < kCount; ++j) {
        const int64_t at = place(group, j);
        if (at < call.classes) to[at] = pack.values[j];
      }
    }
  }

  __device__ __forceinline__ Pack fetch_again(int64_t row, int k, int64_t group) const {
    return fetch(kept ? kept + k * capacity : start(k, row), group);
  }

  __device__ __forceinline__ void add_to(Partition<Real>& partition, const Pack& pack) const {
    Real logits[kCount];
    Real most = partition.largest;
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      logits[j] = cuda::widen(pack.values[j]) * scale;
      most = logits[j] > most ? logits[j] : most;
    }
    if (most == kLeast<Real>) return;
    partition.raise(most);
#pragma unroll
    for (int j = 0; j < kCount; ++j) partition.sum += decay(logits[j] - most);
  }

  // Calls use(j, log_p, p) for each class of a group.
  template <typename Use>
  __device__ __forceinline__ void each(int64_t row, int64_t group,
                                       const LogSoftmax<Real> (&softmax)[kOperands],
                                       const Use& use) const {
    Pack packs[kOperands];
#pragma unroll
    for (int k = 0; k < kOperands; ++k) packs[k] = fetch_again(row, k, group);
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      Real log_p[kOperands], p[kOperands];
#pragma unroll
      for (int k = 0; k < kOperands; ++k) {
        log_p[k] = softmax[k].of(cuda::widen(packs[k].values[j]) * scale);
        p[k] = decay(log_p[k]);
      }
      use(j, log_p, p);
    }
  }

  __device__ void compute(int64_t row) const {
    if (call.mask && !call.mask[row]) return skip(row);
    Partition<Real> partitions[kOperands];
    for (int64_t group = 0; group < groups(); ++group) {
      Pack packs[kOperands];
#pragma unroll
      for (int k = 0; k < kOperands; ++k) packs[k] = fetch(start(k, row), group);
#pragma unroll
      for (int k = 0; k < kOperands; ++k) {
        if (kept) put(kept + k * capacity, group, packs[k]);
        add_to(partitions[k], packs[k]);
      }
    }
    merge_team<warps>(partitions);
    LogSoftmax<Real> softmax[kOperands];
#pragma unroll
    for (int k = 0; k < kOperands; ++k) softmax[k] = LogSoftmax<Real>(partitions[k]);
    Real sums[Loss::kSums] = {};
    if (loss.needs_sums()) {
      for (int64_t group = 0; group < groups(); ++group)
        each(row, group, softmax,
             [&](int, const Real* log_p, const Real* p) { loss.add(log_p, p, sums); });
      merge_team<warps>(sums);
    }
    if (call.values[0] && thread == 0) write_values(row, softmax[0], sums);
    bool wanted = false;
#pragma unroll
    for (int k = 0; k < kOperands; ++k) wanted = wanted || call.gradients[k];
    if (wanted) write_gradients(row, softmax, sums);
  }

  __device__ void write_values(int64_t row, const LogSoftmax<Real>& softmax,
                               const Real* sums) const {
    Real token = 0, values[Loss::kValues];
    if constexpr (Loss::kTokens) {
      const int64_t number = call.tokens[row];
      token = number < 0 || number >= call.classes
                  ? kNaN<Real>
                  : softmax.of(cuda::widen(start(0, row)[number]) * scale);
    }
    loss.values(sums, token, values);
#pragma unroll
    for (int v = 0; v < Loss::kValues; ++v)
      if (call.values[v]) static_cast<Real*>(call.values[v])[row] = values[v];
  }

  __device__ void write_gradients(int64_t row, const LogSoftmax<Real> (&softmax)[kOperands],
                                  const Real* sums) const {
    Real incoming[Loss::kValues];
#pragma unroll
    for (int v = 0; v < Loss::kValues; ++v)
      incoming[v] =
          call.incoming[v] ? static_cast<const Real*>(call.incoming[v])[row] * scale : Real(0);
    const int64_t token = Loss::kTokens ? call.tokens[row] : -1;
    if (Loss::kTokens && (token < 0 || token >= call.classes))
      for (Real& each : incoming) each = kNaN<Real>;
    for (int64_t group = 0; group < groups(); ++group) {
      Pack found[kOperands];
      each(row, group, softmax, [&](int j, const Real* log_p, const Real* p) {
        Real gradients[kOperands];
        loss.gradients(log_p, p, sums, place(group, j) == token, incoming, gradients);
#pragma unroll
        for (int k = 0; k < kOperands; ++k) cuda::narrow(gradients[k], found[k].values[j]);
      });
#pragma unroll
      for (int k = 0; k < kOperands; ++k)
        if (call.gradients[k])
          put(static_cast<Stored*>(call.gradients[k]) + row * call.classes, group, found[k]);
    }
  }

  // A row that the mask leaves out.
  __device__ void skip(int64_t row) const {
    if (thread == 0)
      for (int v = 0; v < Loss::kValues; ++v)
        if (call.values[v]) static_cast<Real*>(call.values[v])[row] = 0;
    Pack zeros;
    for (int j = 0; j < kCount; ++j) cuda::narrow(Real(0), zeros.values[j]);
    for (int k = 0; k < kOperands; ++k)
      if (call.gradients[k])
        for (int64_t group = 0; group < groups(); ++group)
          put(static_cast<Stored*>(call.gradients[k]) + row * call.classes, group, zeros);
  }
};

// `capacity` is what the shared memory has for each operand of a team, in elements; 0 for none.
template <typename Stored, int warps, bool kPacked>
__global__ void __launch_bounds__(warps* kTeams<warps>* kWarpSize)
    functor_kernel(const __grid_constant__ Call call, int64_t capacity) {
  using OfRow = Team<Stored, warps, kPacked>;
  extern __shared__ uint4 shared[];
  const int team = threadIdx.x / OfRow::kThreads;
  Stored* const kept =
      capacity ? reinterpret_cast<Stored*>(shared) + team * OfRow::kOperands * capacity : nullptr;
  const OfRow of_row{call,
                     typename OfRow::Loss(call),
                     static_cast<RealOf<Stored>>(1 / call.temperature),
                     kept,
                     capacity,
                     static_cast<int>(threadIdx.x) % OfRow::kThreads};
  const int64_t step = static_cast<int64_t>(gridDim.x) * kTeams<warps>;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kTeams<warps> + team; row < call.rows;
       row += step)
    of_row.compute(row);
}

}  // namespace losscli::rowfunctors
