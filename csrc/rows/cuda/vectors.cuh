// What a lane makes of a row that lies alike in all operands: of its vectors of 16 bytes, and of
// the elements beside whole vectors.
#pragma once

#include "rows/cuda/current_row.cuh"
#include "rows/cuda/pack.cuh"
#include "rows/cuda/span.cuh"

namespace losscli::cuda {

// `kLanes`: those among which the vectors of a row are dealt out. `kGradients`: how many operands
// may have gradients, the first ones.
template <template <typename> class Formula, typename Stored, int kLanes, int kGradients>
class RowVectors {
 public:
  using State = CurrentRow<Formula, Stored>;
  using Real = typename State::Real;
  using Loss = typename State::Loss;
  using Logits = typename State::Logits;
  static constexpr int kUnused = kGradients > 0 ? 0 : Loss::gradient_sums;
  // Whether a pass after the first reads the row.
  static constexpr bool kAgain = kGradients > 0 || Loss::later_sums > 0;
  // What the first pass finds.
  using Plain = PlainSums<Real, Loss::sums, (Loss::later_sums > 0) ? 0 : kUnused>;
  using Sums = std::conditional_t<Loss::logits, Logits, Plain>;
  using Known = typename State::Known;
  using Powers = typename State::Powers;
  using V = Vector<Stored>;
  using Span = RowSpan<Stored>;
  static constexpr int kRows = Loss::rows, kLogits = State::kLogits;

 protected:
  __device__ __forceinline__ RowVectors(const RowArguments& arguments, const RowMemory& memory,
                                        const typename State::Constants& formula, bool whole)
      : a_(arguments),
        state_(arguments, memory, formula),
        whole_(whole),
        lane_(threadIdx.x % kLanes),
        rows_(static_cast<int>(arguments.rows())) {}

  // A part of a row, in bytes from its first element.
  struct Part {
    int from, bytes;
  };

  __device__ __forceinline__ const unsigned char* start(int k, int row) const {
    return reinterpret_cast<const unsigned char*>(static_cast<const Stored*>(a_.operands[k]) +
                                                  row * a_.strides[k].outer);
  }
  __device__ __forceinline__ Span span_of(int row) const {
    if (!whole_) return {reinterpret_cast<const Stored*>(start(0, row)), a_.length};
    Span span;
    span.vectors = static_cast<int>(a_.length) / V::kCount;
    return span;
  }
  __device__ __forceinline__ Known known_of(int row) const {
    Known known(a_, state_.loss, row < rows_ ? RowNumbers::read<Loss>(a_, row) : RowNumbers());
    if constexpr (Loss::labelled)
      if (known.facts.label >= 0)
        known.facts.picked =
            widen(reinterpret_cast<const Stored*>(start(0, row))[known.facts.label]);
    return known;
  }

  // An element before the first vector or after the last.
  struct Extra {
    int at;  // -1 where the lane has none
    bool is_own;
    Real x[kRows];
    __device__ __forceinline__ bool is_other() const { return at >= 0 && !is_own; }
  };
  __device__ __forceinline__ Extra extra_of(int row, int at) const {
    Extra extra = {at, Loss::labelled && at >= 0 && at == state_.known.facts.label};
#pragma unroll
    for (int k = 0; k < kRows; ++k)
      extra.x[k] = extra.is_other() ? widen(reinterpret_cast<const Stored*>(start(k, row))[at])
                                    : static_cast<Real>(-INFINITY);
    return extra;
  }

  // Adds it to what the first pass finds.
  __device__ __forceinline__ void add_extra(const Extra& extra, Sums& sums) const {
    if constexpr (Loss::logits) {
      Logits others;
      Real x[kLogits][1];
#pragma unroll
      for (int k = 0; k < kLogits; ++k) {
        x[k][0] = Loss::bends && !extra.is_other() ? extra.x[k] : state_.logit(extra.x[k]);
        others.tops[k] = Powers::larger(x[k][0], Powers::kLeast);
      }
      Real shares[1] = {};
      if constexpr (Loss::shares)
        if (extra.is_other())
          shares[0] = state_.loss.share(state_.known.facts, extra.x, state_.weight_of(extra.at));
      others.add(x, shares, {extra.is_other()}, state_.powers);
      sums.merge(others, state_.powers);
    } else if (extra.at >= 0) {
      term(extra.x, sums.sums);
    }
  }

  // Adds an element to the sums of the first pass.
  template <int count>
  __device__ __forceinline__ void term(const Real (&x)[kRows], Real (&to)[count]) const {
    state_.loss.add(state_.known.facts, state_.element(x, false), to);
  }

  // In place of a vector that a lane lacks: what adds nothing. A plain number is multiplied by what
  // it has not.
  __device__ __forceinline__ static void leave_out(int operand, V& vector) {
    operand < kLogits ? vector.clear() : vector.fill(0);
  }

  // Calls `body` with so many of the lane's vectors of a part, each from `place` of its operand and
  // number. In place of those that it lacks the first pass has what adds nothing, a later one any,
  // of which it makes nothing.
  template <int count, bool kFirst, typename Place, typename Body>
  __device__ __forceinline__ void read(const Part& part, const Place& place,
                                       const Body& body) const {
    V vectors[kRows][count];
    const auto take = [&](auto full) {
#pragma unroll
      for (int v = 0; v < count; ++v) {
        const bool has = decltype(full)::value || place_of(v) < part.bytes;
#pragma unroll
        for (int k = 0; k < kRows; ++k)
          if (!kFirst || has)
            vectors[k][v].set(*reinterpret_cast<const uint4*>(place(k, v, has)));
          else
            leave_out(k, vectors[k][v]);
      }
    };
    // Most parts are full, and their vectors one behind the other.
    with_constant(part.bytes == count * kVectorBytes, take);
    body(vectors, part);
  }

  // Adds vectors of a part of the row to what the first pass finds.
  template <int count>
  __device__ __forceinline__ void add_part(const V (&vectors)[kRows][count], const Part& part,
                                           Sums& sums) const {
    if constexpr (Loss::logits)
      add(vectors, part, sums);
    else
      add_terms(vectors, part, [&](const Real(&x)[kRows], auto& to) { term(x, to); }, sums);
  }

  __device__ __forceinline__ void take(const Sums& sums) {
    if constexpr (Loss::logits)
      state_.take(sums);
    else
#pragma unroll
      for (int s = 0; s < sums.kUsed; ++s) state_.totals.sums[s] = sums.sums[s];
  }

  static constexpr int kVectorBytes = kLanes * 16;  // one each lane
  __device__ __forceinline__ int place_of(int vector) const {
    return vector * kVectorBytes + lane_ * 16;
  }

  // Those of the classes of a lane's vector.
  __device__ __forceinline__ V weights_of(const Part& part, int v) const {
    V found;
    found.fill(1);
    if (!Loss::shares || !a_.weight || place_of(v) >= part.bytes) return found;
    const Stored* const from = static_cast<const Stored*>(a_.weight) +
                               (part.from + place_of(v)) / static_cast<int>(sizeof(Stored));
    if (aligned(from)) {
      found.set(*reinterpret_cast<const uint4*>(from));
    } else {
      Pack<Stored> pack;
#pragma unroll
      for (int i = 0; i < V::kCount; ++i) pack.values[i] = from[i];
      memcpy(found.words, &pack, sizeof pack);
    }
    return found;
  }

  // Where the element of the row's class is, in bytes from a part's first.
  __device__ __forceinline__ int64_t own_place(const Part& part) const {
    return state_.known.facts.label * static_cast<int64_t>(sizeof(Stored)) - part.from;
  }
  // Whether it is among those of a part.
  __device__ __forceinline__ bool has_own(const Part& part) const {
    return Loss::labelled && own_place(part) >= 0 && own_place(part) < part.bytes;
  }
  // The element of a lane's vector that is the row's own class; outside where it has none.
  __device__ __forceinline__ int own_in(const Part& part, int v) const {
    if (!Loss::labelled) return -1;
    const int64_t at = own_place(part) - place_of(v);
    return at >= 0 && at < 16 ? static_cast<int>(at) / static_cast<int>(sizeof(Stored)) : -1;
  }

  template <int count>
  __device__ __forceinline__ void add(const V (&vectors)[kRows][count], const Part& part,
                                      Logits& sums) const {
    Real to[kLogits], x[kLogits][count * V::kCount];
    bool are_there[count * V::kCount];
#pragma unroll
    for (int i = 0; i < count * V::kCount; ++i) are_there[i] = place_of(i / V::kCount) < part.bytes;
#pragma unroll
    for (int k = 0; k < kLogits; ++k) {
      to[k] = Loss::bends ? sums.tops[k] : largest(vectors[k], sums.tops[k]);
#pragma unroll
      for (int v = 0; v < count; ++v) {
        const bool has = place_of(v) < part.bytes;
        const int own = own_in(part, v);
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          float some[V::kEach];
          vectors[k][v].get(w, some);
#pragma unroll
          for (int i = 0; i < V::kEach; ++i) {
            // Plain logits are -inf there already.
            const bool is = !Loss::bends || (has && w * V::kEach + i != own);
            const Real logit = is ? state_.logit(some[i]) : static_cast<Real>(-INFINITY);
            x[k][v * V::kCount + w * V::kEach + i] = logit;
            if (Loss::bends) to[k] = Powers::larger(to[k], logit);
          }
        }
      }
    }
    Real shares[count * V::kCount];
    if constexpr (Loss::shares)
      with_constant(a_.weight != nullptr, [&](auto weighted) {
        with_constant(state_.loss.smoothing != Real(0), [&](auto smoothed) {
          share_out<decltype(weighted)::value, decltype(smoothed)::value>(vectors, part, shares);
        });
      });
    sums.raise(to, state_.powers);
    sums.add(x, shares, are_there, state_.powers);
  }

  // The shares of the classes of a lane's vectors: 0 for the row's own class and those that it
  // lacks, whose probabilities are 0.
  template <bool weighted, bool smoothed, int count>
  __device__ __forceinline__ void share_out(const V (&vectors)[kRows][count], const Part& part,
                                            Real (&shares)[count * V::kCount]) const {
    Loss loss = state_.loss;
    if (!smoothed) loss.smoothing = 0, loss.kept = 1;  // for the compiler
#pragma unroll
    for (int v = 0; v < count; ++v) {
      const bool has = place_of(v) < part.bytes;
      const int own = own_in(part, v);
      each(vectors, v, weighted ? weights_of(part, v) : vectors[0][v],
           [&](const Real(&one)[kRows], Real weight, int w, int i) {
             const int at = w * V::kEach + i;
             const bool is_other = at != own && (has || !smoothed);
             const Real share = loss.share(state_.known.facts, one, weighted ? weight : Real(1));
             shares[v * V::kCount + at] = is_other ? share : Real(0);
           });
    }
  }

  // A vector's elements: calls `body` with the elements of all operands, the weight of the class,
  // and their place in it.
  template <int count, typename Body>
  __device__ __forceinline__ static void each(const V (&vectors)[kRows][count], int v,
                                              const V& weights, const Body& body) {
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      float words[kRows][V::kEach], of_classes[V::kEach];
      weights.get(w, of_classes);
#pragma unroll
      for (int k = 0; k < kRows; ++k) vectors[k][v].get(w, words[k]);
#pragma unroll
      for (int i = 0; i < V::kEach; ++i) {
        Real x[kRows];
#pragma unroll
        for (int k = 0; k < kRows; ++k) x[k] = words[k][i];
        body(x, Real(of_classes[i]), w, i);
      }
    }
  }

  template <int count, typename Term, typename Plain>
  __device__ __forceinline__ void add_terms(const V (&vectors)[kRows][count], const Part& part,
                                            const Term& term, Plain& sums) const {
#pragma unroll
    for (int v = 0; v < count; ++v) {
      Plain of_vector;
      each(vectors, v, vectors[0][v],
           [&](const Real(&x)[kRows], Real, int, int) { term(x, of_vector.sums); });
      if (place_of(v) < part.bytes) sums.merge(of_vector);
    }
  }

  // What follows the first pass. `pass` calls what it is given with the lane's vectors of the row
  // and what part of it they are, and knows whether it is for the last time; `exchange` puts sums
  // together.
  template <typename Pass, typename Exchange>
  __device__ __forceinline__ void later_passes(int row, const Extra& extra, bool leads,
                                               const Pass& pass, const Exchange& exchange) {
    if constexpr (Loss::later_sums > 0) {
      PlainSums<Real, Loss::later_sums, kUnused> sums;
      state_.with_powers([&](auto near) {
        const auto term = [&](const Real(&x)[kRows], Real(&to)[Loss::later_sums]) {
          state_.loss.add_later(state_.template element<decltype(near)::value>(x, false), to);
        };
        pass(std::bool_constant<kGradients == 0>(),
             [&](auto& vectors, const Part& part) { add_terms(vectors, part, term, sums); });
        if (extra.at >= 0) term(extra.x, sums.sums);
      });
      exchange(sums);
#pragma unroll
      for (int s = 0; s < sums.kUsed; ++s) state_.totals.later[s] = sums.sums[s];
    }
    state_.finish(leads);
    if constexpr (kGradients > 0)
      state_.with_powers(
          [&](auto near) { write_gradients<decltype(near)::value>(row, extra, pass); });
  }

 private:
  template <bool near, typename Pass>
  __device__ __forceinline__ void write_gradients(int row, const Extra& extra,
                                                  const Pass& pass) const {
    const bool writes = state_.incoming.writes, normal = state_.known.is_normal();
    const Real nothing = state_.known.nothing();
    unsigned char* outputs[kGradients];
#pragma unroll
    for (int k = 0; k < kGradients; ++k)
      outputs[k] = a_.gradients[k]
                       ? reinterpret_cast<unsigned char*>(static_cast<Stored*>(a_.gradients[k]) +
                                                          row * a_.gradient_strides[k].outer)
                       : nullptr;
    // One element, whose place is in bytes.
    const auto write_one = [&](const Real(&x)[kRows], bool own, int64_t at) {
      Real out[kRows];
      const Real weight = state_.weight_of(at / static_cast<int64_t>(sizeof(Stored)));
      state_.template differentiate<near>(x, own, weight, out);
#pragma unroll
      for (int k = 0; k < kGradients; ++k)
        if (outputs[k])
          narrow(normal ? out[k] : nothing, *reinterpret_cast<Stored*>(outputs[k] + at));
    };
    // That of the row's class.
    const auto write_own = [&] {
      Real x[kRows] = {};
      x[0] = state_.known.facts.picked;
      write_one(x, true, state_.known.facts.label * static_cast<int64_t>(sizeof(Stored)));
    };
    pass(std::true_type(), [&](auto& vectors, const Part& part) {
      if (!writes) return;
      constexpr int kCount = sizeof(vectors[0]) / sizeof(V);
      // All of them before the first is written: their powers overlap.
      V out[kGradients][kCount];
#pragma unroll
      for (int v = 0; v < kCount; ++v) {
        float words[kGradients][V::kEach];
        each(vectors, v, weights_of(part, v),
             [&](const Real(&x)[kRows], Real weight, int w, int i) {
               Real found[kRows];
               state_.template differentiate<near>(x, false, weight, found);
#pragma unroll
               for (int k = 0; k < kGradients; ++k) {
                 words[k][i] = found[k];
                 if (i + 1 == V::kEach) out[k][v].set(w, words[k]);
               }
             });
      }
#pragma unroll
      for (int v = 0; v < kCount; ++v)
#pragma unroll
        for (int k = 0; k < kGradients; ++k) {
          if (!normal) out[k][v].fill(nothing);
          if (outputs[k] && place_of(v) < part.bytes)
            *reinterpret_cast<uint4*>(outputs[k] + part.from + place_of(v)) = out[k][v].raw();
        }
      // By the lane that has written in its place.
      if (has_own(part) && own_place(part) / 16 % kLanes == lane_) write_own();
    });
    if (!writes || extra.at < 0) return;
    if (extra.is_own)
      write_own();
    else
      write_one(extra.x, false, extra.at * static_cast<int64_t>(sizeof(Stored)));
  }

 protected:
  const RowArguments& a_;
  State state_;
  const bool whole_;  // whether rows are whole vectors
  const int lane_;    // among those that share a row
  const int rows_;
};

}  // namespace losscli::cuda
