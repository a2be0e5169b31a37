// The walk for rows of any layout and dtype: each row is shared by a warp, a block or a cluster of
// blocks, or 32 rows that are neighbours in memory by a block; read once from memory and, as far as
// it fits, held in shared memory for the passes that follow.
#pragma once

#include <type_traits>

#include "rows/cuda/current_row.cuh"
#include "rows/cuda/pack.cuh"
#include "rows/cuda/policies.h"

namespace losscli::cuda {

// One thread's part of the rows.
template <template <typename> class Formula, typename Stored, int threads, bool kGradient>
class GeneralRows {
 public:
  using State = CurrentRow<Formula, Stored>;
  using Real = typename State::Real;
  using Loss = typename State::Loss;
  using Logits = typename State::Logits;
  using Powers = typename State::Powers;
  using Row = PackedRow<Stored>;
  static constexpr int kRows = Loss::rows, kLogits = State::kLogits, kCount = Row::kCount;
  static constexpr int kAhead = sizeof(Stored) == 8 ? 1 : packs_ahead(kRows + Loss::shares);
  static constexpr bool kColumns = threads < 32;
  // Whether a block, each of whose threads has one row, sums them up.
  static constexpr bool kSums = threads == kOneThread;
  // Whether a pass after the first reads the row.
  static constexpr bool kAgain = (kGradient && Loss::reads) || Loss::later_sums > 0;

  __device__ __forceinline__ GeneralRows(const RowArguments& arguments, const RowMemory& memory,
                                         int resident, Pack<Stored>* held)
      : a_(arguments),
        state_(arguments, memory, RowFormula<Formula, Stored>(arguments)),
        resident_(resident),
        held_(held) {}

  __device__ __forceinline__ void run() {
    if (kGradient) state_.look(!Loss::reads);
    if (state_.incoming.is_done) return;
    // The threads of columns wait for each other, those of rows beyond the last as well.
    constexpr int kTeams = threads <= 32 ? block_threads(threads) / threads : 1;
    const int place = kColumns ? threadIdx.x % kTeams : threads == 32 ? team_.warp : 0;
    const int64_t step = static_cast<int64_t>(gridDim.x) / team_.blocks * kTeams;
    int64_t first = static_cast<int64_t>(blockIdx.x) / team_.blocks * kTeams;
    // Zeros, whatever comes in, are written before that is awaited: a thread has one row.
    if (kGradient && !Loss::reads && first + place < a_.rows())
      fill(go_to(first + place), first + place, 0);
    if (kGradient) state_.template count<block_threads(threads)>();
    for (; first < a_.rows(); first += step)
      if (kColumns || first + place < a_.rows()) one(first + place);
    if (kSums) state_.template sum_block<block_threads(threads), 1>(leads_);
    team_.leave();
  }

 private:
  // Points to a row of each operand, and returns its packs.
  __device__ __forceinline__ Row go_to(int64_t row) {
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      rows_[k] = static_cast<const Stored*>(a_.operands[k]) + a_.strides[k].start(row, a_.inner);
      strides_[k] = a_.strides[k].element;
    }
    const Row whole(rows_[0], strides_[0], a_.length);
    all_packed_ = true;
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      packed_[k] = whole.lies_so(rows_[k], strides_[k]);
      all_packed_ = all_packed_ && packed_[k];
    }
    return whole;
  }

  __device__ __forceinline__ void one(int64_t row) {
    const bool exists = !kColumns || row < a_.rows();
    if (!exists) row = a_.rows() - 1;
    const bool writes = kGradient && state_.incoming.writes && exists;
    const RowNumbers numbers = RowNumbers::read<Loss>(a_, row);
    const Row whole = go_to(row);
    if (kGradient && !Loss::reads) state_.settle();
    state_.begin(row, {a_, state_.loss, numbers});
    const bool normal = state_.known.is_normal();
    leads_ = exists && team_.number() == 0;
    if (!kColumns && !normal) {
      state_.finish(leads_);
      if (writes) fill_abnormal(whole, row);
      return;
    }
    Row packed = whole;
    if (!normal) packed.packs = 0;
    if constexpr (Loss::labelled)
      if (normal && (Loss::reads || a_.value))
        state_.known.facts.picked = widen(rows_[0][state_.known.facts.label * strides_[0]]);
    if constexpr (Loss::logits)
      add_logits(packed);
    else if constexpr (Loss::sums > 0)
      add_terms<true, Loss::sums>(
          packed,
          [&](const Real(&x)[kRows], bool own, Real(&to)[Loss::sums]) {
            state_.loss.add(state_.known.facts, state_.element(x, own), to);
          },
          state_.totals.sums);
    if constexpr (Loss::later_sums > 0)
      add_terms<false, Loss::later_sums>(
          packed,
          [&](const Real(&x)[kRows], bool, Real(&to)[Loss::later_sums]) {
            state_.loss.add_later(state_.element(x, false), to);
          },
          state_.totals.later);
    state_.finish(leads_ && !(kSums && state_.sums_up()));
    if (writes && normal) write_gradients(whole, row);
    if (writes && !normal) fill_abnormal(whole, row);
  }

  // Where this thread's pack of an operand is held.
  __device__ __forceinline__ Pack<Stored>& held(int64_t turn, int k) const {
    return held_[(turn * kRows + k) * block_threads(threads) + threadIdx.x];
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
                row.read_pack(rows_[k], strides_[k], packed_[k], pack + u * step, State::padding());
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
    const int64_t place = state_.known.facts.label - row.first_of(pack);
    return place >= 0 && place < kCount ? static_cast<int>(place) : -1;
  }

  __device__ __forceinline__ void add_logits(const Row& row) {
    Logits all, lost;
    walk<true>(row, [&](Pack<Stored>(&packs)[kAhead][kRows], int64_t pack, int64_t step) {
      Logits some;
      Real x[kLogits][kAhead * kCount];
      [[maybe_unused]] Real shares[kAhead * kCount];
      bool are_there[kAhead * kCount];
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        const int own = own_in(row, pack + u * step);
        const int64_t first = row.first_of(pack + u * step);
        const bool whole = row.is_whole(first);
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
          // The padding of plain logits adds nothing.
          const bool out =
              i == own || ((Loss::bends || Loss::shares) && !whole && !is_inside(row, first, i));
          Real raw[kRows];
          values_of(packs[u], i, raw);
#pragma unroll
          for (int k = 0; k < kLogits; ++k)
            x[k][u * kCount + i] = out ? static_cast<Real>(-INFINITY) : state_.logit(raw[k]);
          are_there[u * kCount + i] = !out;
          if constexpr (Loss::shares)
            shares[u * kCount + i] =
                out ? Real(0)
                    : state_.loss.share(state_.known.facts, raw, state_.weight_of(first + i));
        }
      }
      bool raised = false;
#pragma unroll
      for (int k = 0; k < kLogits; ++k) {
        some.tops[k] = all.tops[k];
#pragma unroll
        for (int i = 0; i < kAhead * kCount; ++i)
          some.tops[k] = Powers::larger(some.tops[k], x[k][i]);
        raised = raised || some.tops[k] != all.tops[k];
      }
      if (raised) {
        take_back(all, lost);
        all.raise(some.tops, state_.powers);
      }
      some.add(x, shares, are_there, state_.powers);
#pragma unroll
      for (int k = 0; k < kLogits; ++k) add_kept(all.sums[k], lost.sums[k], some.sums[k]);
      if constexpr (Logits::kDistance) add_kept(all.distance, lost.distance, some.distance);
      if constexpr (Loss::shares) {
        add_kept(all.shared, lost.shared, some.shared);
        add_kept(all.below, lost.below, some.below);
      }
    });
    take_back(all, lost);
    team_.combine(all, state_.powers);
    state_.take(all);
  }

  // Adds what additions rounded off.
  __device__ __forceinline__ static void take_back(Logits& all, Logits& lost) {
#pragma unroll
    for (int k = 0; k < kLogits; ++k) all.sums[k] += lost.sums[k];
    all.distance += lost.distance;
    if constexpr (Loss::shares) all.shared += lost.shared, all.below += lost.below;
    lost = Logits();
  }

  // Adds to a sum, and to what its additions rounded off; a thread may have hundreds of them.
  __device__ __forceinline__ static void add_kept(Real& sum, Real& lost, Real value) {
    const Real before = sum;
    sum = before + value;
    const Real left = value - (sum - before);
    // Nothing is lost of a sum that is not finite.
    lost += isfinite(left) ? left : Real(0);
  }

  // Element i of packs.
  __device__ __forceinline__ static void values_of(const Pack<Stored> (&packs)[kRows], int i,
                                                   Real (&x)[kRows]) {
#pragma unroll
    for (int k = 0; k < kRows; ++k) x[k] = widen(packs[k].values[i]);
  }

  __device__ __forceinline__ bool is_inside(const Row& row, int64_t first, int i) const {
    return first + i >= 0 && first + i < row.length;
  }

  // Sums up the elements, each of which `term` adds, with whether it is of the row's own class.
  template <bool kFirst, int terms, typename Term>
  __device__ __forceinline__ void add_terms(const Row& row, const Term& term,
                                            Real (&out)[kMostRowSums]) {
    constexpr int kTurns = kFirst ? kAhead : 1;
    constexpr int kOfPass = kFirst == (Loss::later_sums == 0) ? Loss::gradient_sums : 0;
    PlainSums<Real, terms, kGradient ? 0 : kOfPass> sums;
    Real lost[terms] = {};
    walk<kFirst>(row, [&](const Pack<Stored>(&packs)[kTurns][kRows], int64_t pack, int64_t step) {
      Real added[terms] = {};
#pragma unroll
      for (int u = 0; u < kTurns; ++u) {
        const int64_t first = row.first_of(pack + u * step);
        const int own = own_in(row, pack + u * step);
        const bool whole = row.is_whole(first);
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
          Real x[kRows], to[terms];
          values_of(packs[u], i, x);
#pragma unroll
          for (int s = 0; s < terms; ++s) to[s] = added[s];
          term(x, i == own, to);
          if (whole || is_inside(row, first, i))
#pragma unroll
            for (int s = 0; s < terms; ++s) added[s] = to[s];
        }
      }
#pragma unroll
      for (int s = 0; s < sums.kUsed; ++s) add_kept(sums.sums[s], lost[s], added[s]);
    });
#pragma unroll
    for (int s = 0; s < sums.kUsed; ++s) sums.sums[s] += lost[s];
    team_.combine(sums, state_.powers);
#pragma unroll
    for (int s = 0; s < sums.kUsed; ++s) out[s] = sums.sums[s];
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
      outputs.strides[k] = strides.element;
      outputs.packed[k] = packed.lies_so(outputs.rows[k], strides.element);
    }
    return outputs;
  }

  __device__ __forceinline__ void write_gradients(const Row& row, int64_t number) const {
    const Outputs outputs = outputs_of(row, number);
    if constexpr (Loss::reads) {
      walk<false>(row, [&](const Pack<Stored>(&packs)[1][kRows], int64_t pack, int64_t) {
        Pack<Stored> out[kRows];
        const int own = own_in(row, pack);
        [[maybe_unused]] const int64_t first = row.first_of(pack);
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
          Real x[kRows], found[kRows];
          values_of(packs[0], i, x);
          const Real weight = is_inside(row, first, i) ? state_.weight_of(first + i) : Real(1);
          state_.differentiate(x, i == own, weight, found);
#pragma unroll
          for (int k = 0; k < kRows; ++k) narrow(found[k], out[k].values[i]);
        }
#pragma unroll
        for (int k = 0; k < kRows; ++k)
          if (outputs.rows[k])
            row.write_pack(outputs.rows[k], outputs.strides[k], outputs.packed[k], pack, out[k]);
      });
    } else {
      // By the thread that wrote 0 there.
      const int64_t label = state_.known.facts.label;
      if ((label + row.shift) / kCount % team_.count() != team_.number()) return;
      const Real x[kRows] = {};
      Real found[kRows];
      state_.differentiate(x, true, Real(1), found);
#pragma unroll
      for (int k = 0; k < kRows; ++k)
        if (outputs.rows[k]) narrow(found[k], outputs.rows[k][label * outputs.strides[k]]);
    }
  }

  // The gradients of a row that does not count, or has no class.
  __device__ __forceinline__ void fill_abnormal(const Row& row, int64_t number) const {
    if (Loss::reads || state_.known.counts) fill(row, number, state_.known.nothing());
  }

  // Writes one number as the gradients of all elements.
  __device__ __forceinline__ void fill(const Row& row, int64_t number, Real with) const {
    const Outputs outputs = outputs_of(row, number);
    Pack<Stored> all;
#pragma unroll
    for (int i = 0; i < kCount; ++i) narrow(with, all.values[i]);
    for (int64_t pack = team_.number(); pack < row.packs; pack += team_.count())
#pragma unroll
      for (int k = 0; k < kRows; ++k)
        if (outputs.rows[k])
          row.write_pack(outputs.rows[k], outputs.strides[k], outputs.packed[k], pack, all);
  }

  const RowArguments& a_;
  State state_;
  const int resident_;  // packs of each operand that a thread holds
  Pack<Stored>* const held_;
  RowTeam<threads> team_;

  const Stored* rows_[kRows];
  int64_t strides_[kRows];
  bool packed_[kRows];
  bool all_packed_ = true;
  bool leads_ = false;  // whether this thread ends the row
};

template <template <typename> class Formula, typename Stored, int threads, bool kGradient>
__global__ void __launch_bounds__(block_threads(threads),
                                  least_blocks(threads, sizeof(Stored),
                                               Formula<RealOf<Stored>>::reads))
    general_kernel(const __grid_constant__ RowArguments arguments,
                   const __grid_constant__ RowMemory memory, const int resident) {
  extern __shared__ __align__(128) unsigned char shared[];
  GeneralRows<Formula, Stored, threads, kGradient> rows(arguments, memory, resident,
                                                        reinterpret_cast<Pack<Stored>*>(shared));
  rows.run();
}

}  // namespace losscli::cuda
