// The kernel of a functor over rows: each row is shared by a warp, a block or a cluster of blocks,
// read once from memory and, as far as it fits, held in shared memory for the passes that follow.
#pragma once

#include <type_traits>

#include "rowwise/functors/cuda/incoming.cuh"
#include "rowwise/functors/cuda/pack.cuh"
#include "rowwise/functors/cuda/policies.h"
#include "rowwise/functors/cuda/sums.cuh"

namespace losscli::cuda {

// One thread's part of the rows.
template <template <typename> class Functor, typename Stored, int threads, bool kGradient>
class FunctorRows {
 public:
  using Real = RealOf<Stored>;
  using Loss = Functor<Real>;
  using Row = PackedRow<Stored>;
  using Powers = FunctorPowers<Stored, Real>;
  static constexpr int kRows = Loss::rows, kCount = Row::kCount;
  static constexpr int kAhead = sizeof(Stored) == 8 ? 1 : packs_ahead(kRows);
  // Whether a pass after the first reads the row.
  static constexpr bool kAgain = (kGradient && Loss::reads) || Loss::later_sums > 0;

  __device__ __forceinline__ FunctorRows(const FunctorArguments& arguments,
                                         const FunctorMemory& memory, int resident,
                                         Pack<Stored>* held)
      : a_(arguments),
        memory_(memory),
        incoming_(arguments, memory),
        loss_(arguments.parameters),
        powers_(Loss::logits ? arguments.parameters[0] : 1.0),
        resident_(resident),
        held_(held) {}

  __device__ __forceinline__ void run() {
    if (kGradient && incoming_.is_done) return;
    constexpr int kTeams = threads == 32 ? kWarpRowThreads / 32 : 1;
    const int64_t teams = static_cast<int64_t>(gridDim.x) / team_.blocks * kTeams;
    const int64_t first =
        static_cast<int64_t>(blockIdx.x) / team_.blocks * kTeams + (threads == 32 ? team_.warp : 0);
    for (int64_t row = first; row < a_.rows(); row += teams) one(row);
    team_.leave();
  }

 private:
  using Packs = Pack<Stored>[kRows];

  __device__ __forceinline__ void one(int64_t row) {
    const KnownRow<Loss, Stored, Real> known(a_, loss_, row);
    facts_ = known.facts;
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      rows_[k] = static_cast<const Stored*>(a_.operands[k]) + a_.strides[k].start(row, a_.inner);
      strides_[k] = a_.strides[k].classes;
    }
    const Row packed(rows_[0], strides_[0], a_.length);
    all_packed_ = true;
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      packed_[k] = packed.lies_so(rows_[k], strides_[k]);
      all_packed_ = all_packed_ && packed_[k];
    }
    if (!known.counts || !known.known) {
      const Real nothing = known.counts ? static_cast<Real>(NAN) : Real(0);
      write_values(row, nothing, nothing);
      if (kGradient && incoming_.writes) fill(packed, row, nothing);
      return;
    }
    if constexpr (Loss::labelled) facts_.picked = widen(rows_[0][facts_.label * strides_[0]]);
    totals_ = {};
    if constexpr (Loss::logits)
      add_logits(packed);
    else if constexpr (Loss::sums > 0)
      add_sums(packed);
    if constexpr (Loss::later_sums > 0) add_later_sums(packed);
    Real scales[kMostOutputs];
#pragma unroll
    for (int o = 0; o < kMostOutputs; ++o) scales[o] = incoming_.of<Real>(a_, row, o);
    finish_ = loss_.finish(facts_, totals_, scales);
    write_values(row, finish_.values[0], finish_.values[1]);
    if (kGradient && incoming_.writes) write_gradients(packed, row);
  }

  __device__ __forceinline__ void write_values(int64_t row, Real first, Real second) const {
    if (team_.number() != 0) return;
    if (memory_.losses) {
      memory_.losses[row] = first;
    } else if (a_.value && a_.reduction == RowReduction::none) {
      put_value<Stored>(a_, row, first);
      if (a_.outputs > 1) put_value<Stored>(a_, a_.rows() + row, second);
    }
  }

  __device__ __forceinline__ static Stored padding() {
    Stored found;
    narrow(Loss::logits ? static_cast<Real>(-INFINITY) : Real(0), found);
    return found;
  }

  // Where this thread's pack of an operand is held.
  __device__ __forceinline__ Pack<Stored>& held(int64_t turn, int k) const {
    constexpr int kBlock = threads == 32 ? kWarpRowThreads : threads;
    return held_[(turn * kRows + k) * kBlock + threadIdx.x];
  }

  // Calls `body` with this thread's packs and their numbers: from memory in the first pass, which
  // holds them, then from where they are held.
  template <bool kFirst, typename Body>
  __device__ __forceinline__ void walk(const Row& row, const Body& body) const {
    constexpr int kTurns = kFirst ? kAhead : 1;
    const int64_t step = team_.count();
    int64_t turn = 0;
    for (int64_t pack = team_.number(); pack < row.packs; pack += kTurns * step, turn += kTurns) {
      Pack<Stored> packs[kTurns][kRows];
      const bool is_held = !kFirst && kAgain && turn < resident_;
      if (is_held) {
#pragma unroll
        for (int k = 0; k < kRows; ++k) packs[0][k] = held(turn, k);
      } else if (all_packed_ && row.are_whole(pack, pack + (kTurns - 1) * step)) {
        // No branch between them: all are asked for before the first is waited for.
#pragma unroll
        for (int u = 0; u < kTurns; ++u)
#pragma unroll
          for (int k = 0; k < kRows; ++k)
            packs[u][k] = row.read_whole_pack(rows_[k], pack + u * step);
      } else {
#pragma unroll
        for (int u = 0; u < kTurns; ++u)
#pragma unroll
          for (int k = 0; k < kRows; ++k)
            packs[u][k] =
                row.read_pack(rows_[k], strides_[k], packed_[k], pack + u * step, padding());
      }
      if (kFirst && kAgain)
#pragma unroll
        for (int u = 0; u < kTurns; ++u)
          if (turn + u < resident_)
#pragma unroll
            for (int k = 0; k < kRows; ++k) held(turn + u, k) = packs[u][k];
      body(packs, pack, step);
    }
  }

  // The element of a pack that is the row's own class; outside where it has none.
  __device__ __forceinline__ int own_in(const Row& row, int64_t pack) const {
    if (!Loss::labelled) return -1;
    const int64_t place = facts_.label - row.first_of(pack);
    return place >= 0 && place < kCount ? static_cast<int>(place) : -1;
  }

  template <bool exact, int kTurns>
  __device__ __forceinline__ void add_powers(const Pack<Stored> (&packs)[kTurns][kRows],
                                             const Real (&references)[kRows],
                                             const LogitSums<Loss, Stored, Real>& state,
                                             Real (&sums)[kRows], Real& distance) const {
    constexpr DistanceSum kSum = Loss::distance;
#pragma unroll
    for (int u = 0; u < kTurns; ++u)
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        Real x[kRows], e[kRows];
#pragma unroll
        for (int k = 0; k < kRows; ++k) {
          x[k] = widen(packs[u][k].values[i]);
          e[k] = powers_.template power<exact>(x[k], references[k]);
          sums[k] += e[k];
        }
        if constexpr (kSum.weight >= 0) {
          Real gap = 0;
#pragma unroll
          for (int k = 0; k < kRows; ++k)
            if (kSum.factors[k] != 0) {
              const Real below = state.tops[k] - x[k];
              gap = kSum.factors[k] > 0 ? gap + below : gap - below;
            }
          const Real weight = e[kSum.weight];
          distance += weight == Real(0) ? Real(0) : weight * gap;
        }
      }
  }

  __device__ __forceinline__ void add_logits(const Row& row) {
    LogitSums<Loss, Stored, Real> state;
    Real lost[kRows] = {}, lost_distance = 0;
    walk<true>(row, [&](Pack<Stored>(&packs)[kAhead][kRows], int64_t pack, int64_t step) {
      if constexpr (Loss::labelled) {
#pragma unroll
        for (int u = 0; u < kAhead; ++u) {
          const int own = own_in(row, pack + u * step);
          if (own >= 0)
#pragma unroll
            for (int i = 0; i < kCount; ++i)
              if (i == own) packs[u][0].values[i] = padding();
        }
      }
      Real tops[kRows], references[kRows];
      bool exact = true, raised = false;
#pragma unroll
      for (int k = 0; k < kRows; ++k) {
        tops[k] = state.tops[k];
#pragma unroll
        for (int u = 0; u < kAhead; ++u)
#pragma unroll
          for (int i = 0; i < kCount; ++i)
            tops[k] = Powers::larger(tops[k], widen(packs[u][k].values[i]));
        references[k] = powers_.reference(tops[k]);
        exact = exact && powers_.is_exact(references[k]);
        raised = raised || tops[k] != state.tops[k];
      }
      if (raised) {
#pragma unroll
        for (int k = 0; k < kRows; ++k) state.sums[k] += lost[k], lost[k] = 0;
        state.distance += lost_distance;
        lost_distance = 0;
        state.raise(tops, powers_);
      }
      Real sums[kRows] = {}, distance = 0;
      if (exact)
        add_powers<true>(packs, references, state, sums, distance);
      else
        add_powers<false>(packs, references, state, sums, distance);
#pragma unroll
      for (int k = 0; k < kRows; ++k) add_kept(state.sums[k], lost[k], sums[k]);
      if constexpr (Loss::distance.weight >= 0) add_kept(state.distance, lost_distance, distance);
    });
#pragma unroll
    for (int k = 0; k < kRows; ++k) state.sums[k] += lost[k];
    state.distance += lost_distance;
    team_.combine(state, [&](LogitSums<Loss, Stored, Real>& sums, auto lanes) {
      sums.template combine<decltype(lanes)::value>(powers_);
    });
    finish_logits(state);
  }

  // Adds to a sum, and to what its additions rounded off; a thread may have hundreds of them.
  __device__ __forceinline__ static void add_kept(Real& sum, Real& lost, Real value) {
    const Real before = sum;
    sum = before + value;
    const Real left = value - (sum - before);
    // Nothing is lost of a sum that is not finite.
    lost += isfinite(left) ? left : Real(0);
  }

  __device__ __forceinline__ void finish_logits(LogitSums<Loss, Stored, Real>& state) {
    Real own = 0, own_below = 0, others = 0;
    if constexpr (Loss::labelled) {
      Real tops[kRows];
#pragma unroll
      for (int k = 0; k < kRows; ++k) tops[k] = state.tops[k];
      tops[0] = Powers::larger(tops[0], facts_.picked);
      state.raise(tops, powers_);
      others = state.sums[0];
      own = powers_.any_power(facts_.picked, powers_.reference(tops[0]));
      own_below = tops[0] - facts_.picked;
      state.sums[0] += own;
      if (own > Real(0)) state.distance += own * own_below;
    }
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      tops_[k] = state.tops[k];
      references_[k] = powers_.reference(tops_[k]);
      inverses_[k] = Real(1) / state.sums[k];
      totals_.logarithm[k] = powers_.logarithm(state.sums[k], tops_[k], references_[k]);
    }
    if constexpr (Loss::distance.weight >= 0)
      totals_.distance = state.distance / state.sums[Loss::distance.weight] * powers_.inverse;
    if constexpr (Loss::labelled) {
      totals_.own = own * inverses_[0];
      totals_.others = others * inverses_[0];
      totals_.surprise = own > others ? log_of_one_plus(others / own)
                                      : own_below * powers_.inverse + totals_.logarithm[0];
    }
  }

  __device__ __forceinline__ RowElement<Real, kRows> element(const Pack<Stored> (&packs)[kRows],
                                                             int i, int own) const {
    RowElement<Real, kRows> found;
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      found.x[k] = widen(packs[k].values[i]);
      if constexpr (Loss::logits) {
        found.p[k] = powers_.any_power(found.x[k], references_[k]) * inverses_[k];
        found.d[k] = (tops_[k] - found.x[k]) * powers_.inverse;
      } else {
        found.p[k] = found.d[k] = 0;
      }
    }
    found.label_mark = i == own ? Real(1) : Real(0);
    return found;
  }

  __device__ __forceinline__ bool is_inside(const Row& row, int64_t first, int i) const {
    return first + i >= 0 && first + i < row.length;
  }

  __device__ __forceinline__ void add_sums(const Row& row) {
    PlainSums<Real, Loss::sums> sums;
    Real lost[Loss::sums] = {};
    walk<true>(row, [&](const Pack<Stored>(&packs)[kAhead][kRows], int64_t pack, int64_t step) {
      Real added[Loss::sums] = {};
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        const int64_t first = row.first_of(pack + u * step);
        const int own = own_in(row, pack + u * step);
        const bool whole = row.is_whole(first);
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
          Real found[Loss::sums];
          loss_.add(facts_, element(packs[u], i, own), found);
          if (whole || is_inside(row, first, i))
#pragma unroll
            for (int s = 0; s < Loss::sums; ++s) added[s] += found[s];
        }
      }
#pragma unroll
      for (int s = 0; s < Loss::sums; ++s) add_kept(sums.sums[s], lost[s], added[s]);
    });
#pragma unroll
    for (int s = 0; s < Loss::sums; ++s) sums.sums[s] += lost[s];
    combine_plain(sums);
#pragma unroll
    for (int s = 0; s < Loss::sums; ++s) totals_.sums[s] = sums.sums[s];
  }

  __device__ __forceinline__ void add_later_sums(const Row& row) {
    PlainSums<Real, Loss::later_sums> sums;
    Real lost[Loss::later_sums] = {};
    walk<false>(row, [&](const Pack<Stored>(&packs)[1][kRows], int64_t pack, int64_t) {
      Real added[Loss::later_sums] = {};
      const int64_t first = row.first_of(pack);
      const bool whole = row.is_whole(first);
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        Real found[Loss::later_sums];
        loss_.add_later(element(packs[0], i, -1), found);
        if (whole || is_inside(row, first, i))
#pragma unroll
          for (int s = 0; s < Loss::later_sums; ++s) added[s] += found[s];
      }
#pragma unroll
      for (int s = 0; s < Loss::later_sums; ++s) add_kept(sums.sums[s], lost[s], added[s]);
    });
#pragma unroll
    for (int s = 0; s < Loss::later_sums; ++s) sums.sums[s] += lost[s];
    combine_plain(sums);
#pragma unroll
    for (int s = 0; s < Loss::later_sums; ++s) totals_.later[s] = sums.sums[s];
  }

  template <typename Sums>
  __device__ __forceinline__ void combine_plain(Sums& sums) {
    team_.combine(sums,
                  [](Sums& some, auto lanes) { some.template combine<decltype(lanes)::value>(); });
  }

  struct Outputs {
    Stored* rows[kRows];
    int64_t strides[kRows];
    bool packed[kRows];
  };

  __device__ __forceinline__ Outputs outputs_of(const Row& packed, int64_t row) const {
    Outputs outputs;
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      const RowStrides& strides = a_.gradient_strides[k];
      auto* const gradient = static_cast<Stored*>(a_.gradients[k]);
      outputs.rows[k] = gradient ? gradient + strides.start(row, a_.inner) : nullptr;
      outputs.strides[k] = strides.classes;
      outputs.packed[k] = packed.lies_so(outputs.rows[k], strides.classes);
    }
    return outputs;
  }

  __device__ __forceinline__ void write_gradients(const Row& row, int64_t number) const {
    const Outputs outputs = outputs_of(row, number);
    const auto write = [&](const Pack<Stored>(&packs)[1][kRows], int64_t pack, int64_t) {
      Pack<Stored> out[kRows];
      const int own = own_in(row, pack);
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        Real found[kRows];
        loss_.gradient(facts_, finish_, element(packs[0], i, own), found);
#pragma unroll
        for (int k = 0; k < kRows; ++k) narrow(found[k], out[k].values[i]);
      }
#pragma unroll
      for (int k = 0; k < kRows; ++k)
        if (outputs.rows[k])
          row.write_pack(outputs.rows[k], outputs.strides[k], outputs.packed[k], pack, out[k]);
    };
    if constexpr (Loss::reads) {
      walk<false>(row, write);
    } else {
      const Pack<Stored> nothing[1][kRows] = {};
      for (int64_t pack = team_.number(); pack < row.packs; pack += team_.count())
        write(nothing, pack, 0);
    }
  }

  __device__ __forceinline__ void fill(const Row& row, int64_t number, Real with) const {
    const Outputs outputs = outputs_of(row, number);
    Pack<Stored> out;
#pragma unroll
    for (int i = 0; i < kCount; ++i) narrow(with, out.values[i]);
    for (int64_t pack = team_.number(); pack < row.packs; pack += team_.count())
#pragma unroll
      for (int k = 0; k < kRows; ++k)
        if (outputs.rows[k])
          row.write_pack(outputs.rows[k], outputs.strides[k], outputs.packed[k], pack, out);
  }

  const FunctorArguments& a_;
  const FunctorMemory& memory_;
  const FunctorIncoming incoming_;
  const Loss loss_;
  const Powers powers_;
  const int resident_;  // packs of each operand that a thread holds
  Pack<Stored>* const held_;
  RowTeam<threads> team_;

  const Stored* rows_[kRows];
  int64_t strides_[kRows];
  bool packed_[kRows];
  bool all_packed_ = true;
  RowFacts<Real> facts_;
  RowTotals<Real> totals_;
  RowFinish<Real> finish_;
  Real tops_[kRows], references_[kRows], inverses_[kRows];
};

template <template <typename> class Functor, typename Stored, int threads, bool kGradient>
__global__ void __launch_bounds__(block_threads(threads), least_blocks(threads, sizeof(Stored)))
    functor_kernel(const __grid_constant__ FunctorArguments arguments,
                   const __grid_constant__ FunctorMemory memory, const int resident) {
  extern __shared__ __align__(16) unsigned char shared[];
  FunctorRows<Functor, Stored, threads, kGradient> rows(arguments, memory, resident,
                                                        reinterpret_cast<Pack<Stored>*>(shared));
  rows.run();
}

}  // namespace losscli::cuda
