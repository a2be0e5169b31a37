// Rows whose neighbours in memory are elements of other rows, such as the pixels of (N, C, H, W),
// and short rows that lie one after the other: each element is read once, and its gradient written
// once.
//
// A block has some rows that follow each other in its shared memory, filled by copies along the
// memory. Neighbours are a column each. Short rows are lines there as well: as many elements as can
// be read at a time are a unit, and from each row to the next is an odd number of units, so that
// those of different rows are in different banks. A thread takes one row, and every `groups`-th of
// its units; those that share a row meet for its largest logit and for its sums, and one of them
// finishes it.
#pragma once

#include "rows/cuda/bulk_copy.cuh"
#include "rows/cuda/few_rows.cuh"
#include "rows/cuda/incoming.cuh"
#include "rows/cuda/policies.h"
#include "rows/cuda/results.cuh"

namespace losscli::cuda {

namespace columns {

// Which row of the outer dimension a row is of, and which of the inner one.
struct Place {
  int64_t outer, inner;

  __device__ __forceinline__ Place(int64_t row, int64_t inner_rows) {
    if (inner_rows == 1)
      outer = row;
    else if (row >> 32 || inner_rows >> 32)  // a division of 64 bits takes long
      outer = row / inner_rows;
    else
      outer = static_cast<uint32_t>(row) / static_cast<uint32_t>(inner_rows);
    inner = row - outer * inner_rows;
  }
  __device__ __forceinline__ int64_t in(const RowStrides& strides) const {
    return outer * strides.outer + inner * strides.inner;
  }
};

// Elements that follow each other, read and written at once.
template <typename Stored, int count>
struct alignas(sizeof(Stored) * count) Unit {
  Stored elements[count];
};

}  // namespace columns

// `kPitch`: how far the classes of a row are apart in shared memory, 0 where that is not known; if
// it is, each of kMostColumns threads has a row. 1: as in memory, in units of so many elements.
template <typename Stored, RowMode kMode, int kPitch, int kUnit>
__global__ void __launch_bounds__(kMostColumnThreads)
    columns_kernel(const __grid_constant__ RowArguments arguments,
                   const __grid_constant__ RowMemory memory, const ColumnShape shape,
                   const __grid_constant__ typename ModeOf<kMode>::Scale scale) {
  static_assert(kMode != RowMode::plain, "plain rows are smoothed ones without a share");
  static_assert(kUnit == 1 || kPitch == 1, "elements of a unit follow each other");
  // In float32 the power of a logit takes its place, for the gradient.
  constexpr bool kKeeps = sizeof(Stored) == 4 && kMode == RowMode::smoothed;
  using Unit = columns::Unit<Stored, kUnit>;
  struct Row {
    float reference, all, own, share;
  };
  extern __shared__ __align__(128) unsigned char shared[];
  const int columns = kPitch ? kMostColumns : shape.columns, pitch = kPitch ? kPitch : shape.pitch,
            groups = kPitch ? 1 : blockDim.x / columns;
  const bool are_lines = pitch == 1, by_vectors = shape.copy_bytes == 16;
  const int classes = static_cast<int>(arguments.length), units = classes / kUnit;
  // Units whose powers are added at a time.
  constexpr int kBatch = 8 / kUnit;
  // Of each row; then of each thread; then the logits, and last the powers or the logits.
  Row* const rows_of = reinterpret_cast<Row*>(shared);
  float* const tops = reinterpret_cast<float*>(rows_of + columns);
  int* const numbers = reinterpret_cast<int*>(tops + columns);
  float* const found = reinterpret_cast<float*>(numbers + columns);
  float* const belows = found + blockDim.x;
  Stored* const held = reinterpret_cast<Stored*>(belows + blockDim.x);

  const float share = share_of(arguments);
  const int thread = threadIdx.x, column = thread % columns, group = kPitch ? 0 : thread / columns;
  const int wide = shape.copy_bytes / static_cast<int>(sizeof(Stored));
  const int copies = columns / wide;  // of a class
  const int64_t element = arguments.strides[0].element;
  const int64_t gradient_element = arguments.gradient_strides[0].element;

  // Calls `body` with parts of lines: where each is from the first element of all, where here, and
  // how many elements. They are vectors of 16 bytes of rows that can be copied so, of which those
  // of one block of memory may end with less; or elements. A thread has every blockDim.x-th.
  const auto along = [&](int64_t first, int64_t outer, const auto& body) {
    const int rows = static_cast<int>(min(int64_t{columns}, arguments.rows() - first));
    constexpr int kVector = 16 / sizeof(Stored);
    if (by_vectors && shape.line == classes && outer == classes) {
      const int length = rows * classes;
      for (int at = kVector * thread; at < length; at += kVector * blockDim.x)
        body(first * classes + at, held + at, min(kVector, length - at));
      return;
    }
    const int part = by_vectors ? kVector : 1, parts = classes / part;
    const int rows_step = blockDim.x / parts, step = blockDim.x % parts;
    int row = thread / parts, k = thread % parts;
#pragma unroll 4
    for (int at = thread; at < rows * parts; at += blockDim.x) {
      body((first + row) * outer + k * part, held + row * shape.line + k * part, part);
      row += rows_step;
      k += step;
      if (k >= parts) k -= parts, ++row;
    }
  };
  const auto read = [&](int64_t first) {
    if (are_lines)
      return along(first, arguments.strides[0].outer, [&](int64_t from, Stored* place, int count) {
        const auto* const data = static_cast<const Stored*>(arguments.operands[0]) + from;
        if (count * sizeof(Stored) == 16) return bulk::copy(place, data, 16);
        for (int at = 0; at < count; ++at) bulk::copy(place + at, data + at, sizeof(Stored));
      });
    const int copied = thread % copies * wide;
    if (first + copied >= arguments.rows()) return;
    const columns::Place place(first + copied, arguments.inner);
    const int step = blockDim.x / copies;
    int k = thread / copies;
    const Stored* from = static_cast<const Stored*>(arguments.operands[0]) +
                         place.in(arguments.strides[0]) + k * element;
#pragma unroll 4
    for (; k < classes; k += step, from += step * element)
      bulk::copy(held + k * pitch + copied, from, shape.copy_bytes);
  };
  // Those that share a row.
  const auto meet = [&] {
    if (groups > 1) __syncthreads();
  };
  int64_t first = static_cast<int64_t>(blockIdx.x) * columns;
  const bool has_gradient = arguments.gradients[0];
  // Most launches that check have nothing to do.
  const bool ahead = arguments.guess != Guess::check;
  if (ahead) read(first);
  RowIncoming incoming(arguments, memory, true);
  if (has_gradient && incoming.is_done) {
    bulk::wait_all();
    return;
  }
  const bool writes = has_gradient && incoming.writes;
  incoming.settle(arguments, memory);
  if (writes && memory.counts) incoming.divide(count_few<Stored>(arguments));

  for (bool is_read = ahead; first < arguments.rows();
       first += static_cast<int64_t>(gridDim.x) * columns, is_read = false) {
    if (!is_read) read(first);
    const bool is = first + column < arguments.rows();
    const columns::Place place(is ? first + column : 0, arguments.inner);
    // The row's class, -1 if it is none and -2 where the row does not count.
    if (group == 0) {
      int number = -2;
      const int64_t label = is ? read_label(arguments, first + column) : ignore_index(arguments);
      if (label != ignore_index(arguments))
        number = label >= 0 && label < classes ? static_cast<int>(label) : -1;
      numbers[column] = number;
    }
    bulk::wait_all();
    __syncthreads();

    Stored* const mine = held + (are_lines ? column * shape.line : column);
    const auto at = [&](int unit) -> Unit& {
      return *reinterpret_cast<Unit*>(mine + unit * kUnit * pitch);
    };
    float top = -FLT_MAX;
#pragma unroll kBatch
    for (int unit = group; unit < units; unit += groups) {
      const Unit logits = at(unit);
#pragma unroll
      for (const Stored& logit : logits.elements) top = fmaxf(top, widen(logit));
    }
    found[thread] = top;
    meet();
    const int number = numbers[column];
    const float logit = number >= 0 ? static_cast<float>(widen(mine[number * pitch])) : 0.0f;
    for (int other = 0; other < groups; ++other) top = fmaxf(top, found[other * columns + column]);
    top = scale.bend(top);
    const float reference = scale.reference(top);
    meet();

    double sum = 0;
    float below = 0;
    const auto add = [&](auto near, auto shared) {
      const auto take = [&](int unit, float* powers) {
        Unit logits = at(unit);
#pragma unroll
        for (int i = 0; i < kUnit; ++i) {
          float distance;
          const float power = scale.template measure<decltype(near)::value, Stored>(
              widen(logits.elements[i]), reference, top, distance);
          if constexpr (kKeeps) logits.elements[i] = power;
          if (decltype(shared)::value) below = __fmaf_rn(distance, share, below);
          powers[i] = unit * kUnit + i != number ? power : 0.0f;
        }
        if constexpr (kKeeps)
          if (writes) at(unit) = logits;
      };
      // Eight at a time, and these in double: a sum of one large power and many small ones would be
      // rounded as often.
      int unit = group;
      for (; unit + (kBatch - 1) * groups < units; unit += kBatch * groups) {
        float powers[8];
#pragma unroll
        for (int u = 0; u < kBatch; ++u) take(unit + u * groups, powers + u * kUnit);
        sum += ((powers[0] + powers[1]) + (powers[2] + powers[3])) +
               ((powers[4] + powers[5]) + (powers[6] + powers[7]));
      }
      for (; unit < units; unit += groups) {
        float powers[kUnit];
        take(unit, powers);
#pragma unroll
        for (int i = 1; i < kUnit; ++i) powers[0] += powers[i];
        sum += powers[0];
      }
    };
    // By the row alone, not by its neighbours.
    with_constant(scale.template is_near<Stored>(reference), [&](auto near) {
      with_constant(share != 0, [&](auto shared) { add(near, shared); });
    });
    found[thread] = static_cast<float>(sum);
    belows[thread] = below;
    meet();
    RowSums row_sums;
    if (group == 0 && is) {
      SpreadState state;
      state.top = top;
      double others = 0;
      for (int other = 0; other < groups; ++other) {
        others += found[other * columns + column];
        state.below += belows[other * columns + column];
      }
      state.sum = static_cast<float>(others);
      const RowTarget<Stored> target(arguments, number == -2 ? ignore_index(arguments) : number);
      const RowResult<Stored> result(state, logit, scale);
      row_sums = sums_of(arguments, target, state, result, logit, scale);
      if (!memory.sums) put_row<Stored>(arguments, memory, first + column, row_sums);
      if (has_gradient) {
        const auto factors_for = [&](const RowResult<Stored>& sums) {
          return factors_of(arguments, target, sums,
                            incoming.template of<float>(arguments, first + column), logit, scale);
        };
        RowFactors factors = factors_for(result);
        // The quotient by the sum in one rounding: of few classes one may have all of it.
        if (sizeof(Stored) == 4 && !target.ignored && arguments.parameters[kZLoss] == 0) {
          RowResult<Stored> whole = result;
          whole.sum = 1;
          factors.all = static_cast<float>(factors_for(whole).all / (others + result.own));
        }
        rows_of[column] = {result.reference, factors.all, factors.own, factors.share};
      }
    }
    if (memory.sums) {
      row_sums = warp_sum(row_sums);
      if (thread % 32 == 0 && group == 0 && is)
        memory.sums[(first + thread) / shape.summed()] = row_sums;
    }
    meet();
    if (writes && is) {
      const Row row = rows_of[column];
      const RowFactors factors{row.all, row.own, row.share};
      // Where a unit of the row is written, and how far the thread's next one is from it.
      Stored* to = are_lines
                       ? mine + group * kUnit * pitch
                       : static_cast<Stored*>(arguments.gradients[0]) +
                             place.in(arguments.gradient_strides[0]) + group * gradient_element;
      const int64_t step = groups * (are_lines ? kUnit * pitch : gradient_element);
      with_constant(scale.template is_near<Stored>(row.reference), [&](auto near) {
#pragma unroll(kBatch > 4 ? 4 : kBatch)
        for (int unit = group; unit < units; unit += groups, to += step) {
          Unit logits = at(unit);
#pragma unroll
          for (int i = 0; i < kUnit; ++i) {
            const float x = widen(logits.elements[i]);
            float out;
            if constexpr (kKeeps)
              out = __fmaf_rn(x, factors.all, -factors.share);
            else
              out =
                  scale.template gradient<decltype(near)::value, Stored>(x, row.reference, factors);
            if (unit * kUnit + i == number) out = factors.own;
            narrow(number == -2 ? 0.0f : out, logits.elements[i]);
          }
          *reinterpret_cast<Unit*>(to) = logits;
        }
      });
    }
    if (writes && are_lines) {
      __syncthreads();
      along(first, arguments.gradient_strides[0].outer, [&](int64_t to, Stored* place, int count) {
        auto* const data = static_cast<Stored*>(arguments.gradients[0]) + to;
        if (count * sizeof(Stored) == 16) {
          *reinterpret_cast<uint4*>(data) = *reinterpret_cast<const uint4*>(place);
          return;
        }
        for (int at = 0; at < count; ++at) data[at] = place[at];
      });
    }
    // Before the shared memory is of other rows.
    __syncthreads();
  }
  finish_few<Stored>(arguments, memory);
}

}  // namespace losscli::cuda
