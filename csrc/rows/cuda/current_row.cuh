// What a thread knows of the row that its team has: its facts, what the passes over it have found,
// and what its values and gradients are made of.
#pragma once

#include "rows/cuda/known_row.cuh"
#include "rows/cuda/sums.cuh"

namespace losscli::cuda {

// What the parameters of a call make of the formula. Blocks that end soon have it from the host; to
// others, whose registers keep it, it would come from constant memory again and again.
template <template <typename> class Formula, typename Stored>
struct RowFormula {
  using Real = RealOf<Stored>;
  using Loss = Formula<Real>;

  LOSSCLI_HOST_DEVICE explicit RowFormula(const RowArguments& arguments)
      : loss(arguments.parameters),
        powers(Loss::logits ? arguments.parameters[Loss::temperature] : 1.0) {}

  Loss loss;
  LogitPowers<Real, Stored> powers;
};

template <template <typename> class Formula, typename Stored>
class CurrentRow {
 public:
  using Constants = RowFormula<Formula, Stored>;
  using Real = RealOf<Stored>;
  using Loss = Formula<Real>;
  using Known = KnownRow<Loss, Stored, Real>;
  using Logits = LogitSums<Loss, Real, Stored>;
  using Powers = LogitPowers<Real, Stored>;
  using Element = RowElement<Real, Loss::rows>;
  static constexpr int kRows = Loss::rows, kLogits = Logits::kRows;

  __device__ __forceinline__ CurrentRow(const RowArguments& arguments, const RowMemory& memory,
                                        const Constants& formula)
      : loss(formula.loss), powers(formula.powers), a_(arguments), memory_(memory) {
    release_next();
  }

  // By all threads before the first row, where gradients are wanted. `later`: settle() follows.
  __device__ __forceinline__ void look(bool later) { incoming = RowIncoming(a_, memory_, later); }
  __device__ __forceinline__ void settle() { incoming.settle(a_, memory_); }
  // By all of a block as well: counts what a mean divides by, if blocks do.
  template <int threads>
  __device__ __forceinline__ void count() {
    if (!memory_.counts) return;
    __shared__ Scratch<RowSums> shared;
    RowSums sums;
#pragma unroll 4
    for (int row = threadIdx.x; row < static_cast<int>(a_.rows()); row += threads)
      sums.add({0, Known(a_, loss, RowNumbers::read<Loss>(a_, row)).share()});
    sums = block_sum<threads>(sums, shared);
    if (threadIdx.x == 0) shared.put(0, sums);
    __syncthreads();
    incoming.divide(shared.get(0).count());
  }

  // Begins a row, of which nothing is read yet.
  __device__ __forceinline__ void begin(int64_t row, const Known& known) {
    this->known = known;
    number_ = row;
    totals = {};
#pragma unroll
    for (int o = 0; o < kMostOutputs; ++o) scales_[o] = incoming.template of<Real>(a_, row, o);
  }

  // Takes what the first pass over logits has found, but for the logit of the row's class.
  __device__ __forceinline__ void take(Logits state) {
    [[maybe_unused]] const Real picked = logit(known.facts.picked);
    Real own = 0, own_below = 0, others = 0;
    if constexpr (Loss::labelled) {
      Real tops[kLogits];
#pragma unroll
      for (int k = 0; k < kLogits; ++k) tops[k] = state.tops[k];
      tops[0] = Powers::larger(tops[0], picked);
      state.raise(tops, powers);
    }
    state.settle(powers);
    if constexpr (Loss::labelled) {
      others = state.sums[0];
      own_below = state.tops[0] - picked;
      own = powers.power(own_below);
      state.sums[0] += own;
      if (own != Real(0)) state.distance += own * own_below;
      if constexpr (Loss::shares) {
        const Real x[kRows] = {picked}, share = loss.share(known.facts, x, known.facts.weight);
        state.shared += share;
        if (share != Real(0)) state.below += share * own_below;
      }
    }
#pragma unroll
    for (int k = 0; k < kLogits; ++k) {
      tops_[k] = totals.tops[k] = state.tops[k];
      inverses_[k] = Real(1) / state.sums[k];
      totals.logarithm[k] = logarithm(state.sums[k]);
      if constexpr (Loss::shares) totals.largest[k] = state.tops[k] * powers.inverse;
    }
    if constexpr (Loss::shares) {
      totals.shared = state.shared;
      totals.below = state.below * powers.inverse;
    }
    if constexpr (Loss::logits && Powers::kShort) {
      near_ = true;
#pragma unroll
      for (int k = 0; k < kLogits; ++k) {
        near_ = near_ && powers.is_near(tops_[k]);
        references_[k] = __fmaf_rn(tops_[k], powers.scale, log2f(state.sums[k]));
      }
    }
    if constexpr (Logits::kDistance)
      totals.distance = state.distance / state.sums[Loss::distance.weight] * powers.inverse;
    if constexpr (Loss::labelled) {
      totals.own = own * inverses_[0];
      totals.others = others * inverses_[0];
      totals.surprise = own > others ? log_of_one_plus(others / own)
                                     : own_below * powers.inverse + totals.logarithm[0];
    }
  }

  // Ends the passes of all sums: `leads` in the one thread that writes the row's values.
  __device__ __forceinline__ void finish(bool leads) {
    finished = loss.finish(known.facts, totals, scales_);
    if (!leads) return;
    if (memory_.sums) {
      memory_.sums[number_] = sums();
    } else if (a_.value && a_.reduction == RowReduction::none) {
      put_value<Stored>(a_, number_, value(0));
#pragma unroll
      for (int o = 1; o < kMostOutputs; ++o)
        if (o < a_.outputs) put_value<Stored>(a_, o * a_.rows() + number_, value(o));
    }
  }
  // Whether the values of rows are summed up.
  __device__ __forceinline__ bool sums_up() const { return memory_.sums; }
  // Sums up the rows of a block: one of so many lanes beside each other leads.
  template <int threads, int lanes>
  __device__ __forceinline__ void sum_block(bool leads) {
    if (!memory_.sums) return;
    RowSums all = leads ? sums() : RowSums();
    if constexpr (threads > lanes) {
      __shared__ Scratch<RowSums> shared;
      all = block_sum<threads>(all, shared);
    }
    if (threadIdx.x != 0) return;
    if (memory_.is_one)
      put_total<Stored>(a_, all);
    else
      memory_.sums[blockIdx.x] = all;
  }

  // Calls `body` with whether the logits of the row are near to 0.
  template <typename Body>
  __device__ __forceinline__ void with_powers(const Body& body) const {
    if constexpr (Loss::logits && Powers::kShort)
      if (near_) return body(std::true_type());
    body(std::false_type());
  }

  // A logit as powers take it.
  __device__ __forceinline__ Real logit(Real x) const {
    if constexpr (!Loss::bends) return x;
    Real bent = x, slope;
    if constexpr (Loss::bends) loss.bend(x, bent, slope);
    return bent;
  }

  // The weight of a class, where classes have shares of the loss.
  __device__ __forceinline__ Real weight_of(int64_t at) const {
    if constexpr (!Loss::shares) return 1;
    return a_.weight ? widen(static_cast<const Stored*>(a_.weight)[at]) : Real(1);
  }

  // One element of each operand, and the weight of its class.
  template <bool near = false>
  __device__ __forceinline__ Element element(const Real (&x)[kRows], bool own,
                                             Real weight = 1) const {
    Element found;
    found.weight = weight;
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      found.x[k] = x[k];
      if (Loss::logits && k < kLogits) {
        Real bent = x[k];
        if constexpr (Loss::bends) loss.bend(x[k], bent, found.slope);
        const Real below = tops_[k] - bent;
        if constexpr (near)
          found.p[k] = powers.power_beyond(bent, references_[k]);
        else
          found.p[k] = powers.power(below) * inverses_[k];
        found.d[k] = below * powers.inverse;
      } else {
        found.p[k] = found.d[k] = 0;
      }
    }
    found.label_mark = own ? Real(1) : Real(0);
    return found;
  }

  template <bool near = false>
  __device__ __forceinline__ void differentiate(const Real (&x)[kRows], bool own, Real weight,
                                                Real (&out)[kRows]) const {
    loss.gradient(known.facts, finished, element<near>(x, own, weight), out);
  }

  // What adds nothing to any sum, in place of an element that is not there: but for shares and bent
  // logits.
  __device__ __forceinline__ static Stored padding() {
    Stored found;
    narrow(Loss::logits ? static_cast<Real>(-INFINITY) : Real(0), found);
    return found;
  }

  // An output of the row.
  __device__ __forceinline__ Real value(int output) const {
    return known.is_normal() ? finished.values[output] : known.nothing();
  }
  __device__ __forceinline__ RowSums sums() const {
    return {static_cast<double>(value(0)), known.share()};
  }

  RowIncoming incoming;
  const Loss loss;
  const Powers powers;
  Known known;
  RowTotals<Real> totals;
  RowFinish<Real> finished;

 private:
  const RowArguments& a_;
  const RowMemory& memory_;
  int64_t number_ = 0;
  Real scales_[kMostOutputs];
  Real tops_[kLogits], inverses_[kLogits];
  Real references_[kLogits];
  bool near_ = false;
};

}  // namespace losscli::cuda
