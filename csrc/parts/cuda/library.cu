// Rows whose classes are spread over parts, on CUDA: a thread for what joins a row, and for
// gradients one pass over the logits, of which blocks take stretches of a row.
#include "core/cuda/launch.h"
#include "core/operand.h"
#include "parts/gradient.h"
#include "parts/join.h"
#include "rows/cuda/incoming.cuh"
#include "rows/cuda/pack.cuh"
#include "rows/cuda/powers.cuh"

namespace losscli::cuda {
// Named: nvcc names kernels of an unnamed one after the folder of the build.
inline namespace part_kernels {

constexpr int kJoinThreads = 64;  // few: 8,192 rows are to reach most multiprocessors
constexpr int kThreads = 256;
constexpr int kInFlight = 4;  // packs that a thread asks for at a time, of all operands
constexpr int kRounds = 4;    // so many times, for what is known of the row takes as long as a pack
constexpr int64_t kMostBlocks = (int64_t{1} << 31) - 1;

template <typename Real, bool divergences>
__global__ void __launch_bounds__(kJoinThreads) join_kernel(const JoinArguments arguments) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kJoinThreads + threadIdx.x;
  if (row >= arguments.rows) return;
  if constexpr (divergences)
    join_divergences<Real, Real>(arguments, row);
  else
    join<Real, Real>(arguments, row);
}

template <bool divergences>
Status launch_join(const JoinArguments& a, const LaunchContext& context) {
  const dim3 grid(static_cast<unsigned>(divide_up(a.rows, kJoinThreads)));
  const auto kernel = a.wide ? join_kernel<double, divergences> : join_kernel<float, divergences>;
  return launch("join_kernel", kernel, grid, kJoinThreads, false, context.stream, a);
}

template <typename Formula, typename Stored>
__global__ void __launch_bounds__(kThreads)
    part_gradient_kernel(const PartGradientArguments a, unsigned blocks_of_row,
                         const LogitPowers<RealOf<Stored>, Stored> powers) {
  using Real = RealOf<Stored>;
  constexpr int kOperands = Formula::kOperands, kLoads = kInFlight / kOperands;
  using Packed = PackedRow<Stored>;
  const int64_t row = blockIdx.x / blocks_of_row, stretch = blockIdx.x % blocks_of_row;
  const Stored* from[kOperands];
  Stored* to[kOperands];
  bool reads_packs[kOperands], writes_packs[kOperands];
  const Packed packed(static_cast<const Stored*>(a.logits[0]) + row * a.row_strides[0], 1, a.width);
  constexpr int64_t kStretch = int64_t{kThreads} * kLoads * kRounds;
  const int64_t end = min((stretch + 1) * kStretch, packed.packs);
  const int64_t begin = stretch * kStretch + threadIdx.x;
  if (begin >= end) return;  // most threads of a short row
  const Formula formula(a, row, [&](int output) {
    return read_number(a.incoming, a.incoming_dtype,
                       row * a.incoming_stride + output * a.incoming_output_stride);
  });
#pragma unroll
  for (int k = 0; k < kOperands; ++k) {
    from[k] = static_cast<const Stored*>(a.logits[k]) + row * a.row_strides[k];
    to[k] = a.gradients[k] ? static_cast<Stored*>(a.gradients[k]) + row * a.width : nullptr;
    reads_packs[k] = packed.lies_so(from[k], 1);
    writes_packs[k] = packed.lies_so(to[k], 1);
  }
  Stored padding;
  narrow(Real(0), padding);
  for (int64_t pack = begin; pack < end; pack += kThreads * kLoads) {
    Pack<Stored> held[kLoads][kOperands];
#pragma unroll
    for (int u = 0; u < kLoads; ++u)
#pragma unroll
      for (int k = 0; k < kOperands; ++k)
        if (formula.counts && pack + u * kThreads < end)
          held[u][k] = packed.read_pack(from[k], 1, reads_packs[k], pack + u * kThreads, padding);
#pragma unroll
    for (int u = 0; u < kLoads; ++u) {
      const int64_t at = pack + u * kThreads;
      if (at >= end) break;
      // What a pack has beside the row is computed along, and not written.
      const int64_t first = packed.first_of(at), place = formula.place - first;
      const int own = place >= 0 && place < Packed::kCount ? static_cast<int>(place) : -1;
#pragma unroll
      for (int i = 0; i < Packed::kCount; ++i) {
        Real x[kOperands], out[kOperands] = {};
#pragma unroll
        for (int k = 0; k < kOperands; ++k) x[k] = widen(held[u][k].values[i]);
        const int64_t column = min(max(first + i, int64_t{0}), a.width - 1);
        if (formula.counts)
          formula.of_class(
              formula.weight_of(column), i == own, x,
              [&](Real below) { return powers.power(below); }, out);
#pragma unroll
        for (int k = 0; k < kOperands; ++k) narrow(out[k], held[u][k].values[i]);
      }
#pragma unroll
      for (int k = 0; k < kOperands; ++k)
        if (to[k]) packed.write_pack(to[k], 1, writes_packs[k], at, held[u][k]);
    }
  }
}

template <template <typename, typename> class Formula>
Status launch_gradient(const PartGradientArguments& a, const LaunchContext& context) {
  return with_floating_type_of<__half, __nv_bfloat16>(a.dtype, [&](auto stored) {
    using Stored = decltype(stored);
    using Real = RealOf<Stored>;
    using Of = Formula<Real, Real>;
    constexpr int64_t kStretch =
        int64_t{kThreads} * (kInFlight / Of::kOperands) * kRounds * PackedRow<Stored>::kCount;
    // A row that does not begin with a pack has one more.
    const int64_t blocks_of_row = divide_up(a.width + PackedRow<Stored>::kCount, kStretch);
    const int64_t blocks = blocks_of_row * a.rows;
    if (blocks > kMostBlocks)
      return Status::failure(StatusCode::failed, "more rows than a grid has blocks");
    return launch("part_gradient_kernel", part_gradient_kernel<Of, Stored>,
                  dim3(static_cast<unsigned>(blocks)), kThreads, false, context.stream, a,
                  static_cast<unsigned>(blocks_of_row),
                  LogitPowers<Real, Stored>(a.settings.divisor()));
  });
}

template <typename Real, typename Number>
using Plain = PartGradient<Real, Number, true, false>;
template <typename Real, typename Number>
using General = PartGradient<Real, Number, false, false>;
template <typename Real, typename Number>
using Capped = PartGradient<Real, Number, false, true>;

Status write_gradient(const PartGradientArguments& a, const LaunchContext& context) {
  if (a.settings.softcap != 0) return launch_gradient<Capped>(a, context);
  return is_plain(a.settings) ? launch_gradient<Plain>(a, context)
                              : launch_gradient<General>(a, context);
}

const PartKernels kernels{kInterface, launch_join<false>, launch_join<true>, write_gradient,
                          launch_gradient<DivergenceGradient>};

}  // namespace part_kernels
}  // namespace losscli::cuda

LOSSCLI_EXPORT const losscli::PartKernels* losscli_part_kernels() {
  return &losscli::cuda::kernels;
}
