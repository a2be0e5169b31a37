// max(0, d(anchor, positive) - d(anchor, negative) + margin), with d(a, b) the p-norm of
// a - b + eps. With a swap the negative is the nearer of those of the anchor and of the positive.
#pragma once

#include "losses/rows/loss.h"

namespace losscli {

// The usual one: p is 2, and there is no swap.
template <typename Real, bool usual>
struct TripletMargin : RowLoss<3, 4> {
  static constexpr int sums = usual ? 2 : 3;  // of the powers of each difference

  LOSSCLI_HOST_DEVICE explicit TripletMargin(const double* parameters)
      : margin(static_cast<Real>(parameters[0])),
        p(static_cast<Real>(parameters[1])),
        eps(static_cast<Real>(parameters[2])),
        swap(parameters[3] != 0) {}

  LOSSCLI_HOST_DEVICE bool is(int number) const { return usual ? number == 2 : p == Real(number); }
  LOSSCLI_HOST_DEVICE bool swaps() const { return !usual && swap; }

  LOSSCLI_HOST_DEVICE void differences(const RowElement<Real, 3>& e, Real (&out)[3]) const {
    out[0] = (e.x[0] - e.x[1]) + eps;
    out[1] = (e.x[0] - e.x[2]) + eps;
    out[2] = usual ? Real(0) : (e.x[1] - e.x[2]) + eps;
  }

  LOSSCLI_HOST_DEVICE void add(const RowFacts<Real>&, const RowElement<Real, 3>& e,
                               Real (&to)[sums]) const {
    Real found[3];
    differences(e, found);
    if (is(2)) {
      for (int k = 0; k < sums; ++k) to[k] = multiply_add(found[k], found[k], to[k]);
    } else if (is(1)) {
      for (int k = 0; k < sums; ++k) to[k] += size_of(found[k]);
    } else {
      for (int k = 0; k < sums; ++k) to[k] += power(size_of(found[k]), p);
    }
  }

  LOSSCLI_HOST_DEVICE Real norm(Real sum) const {
    return is(2) ? root(sum) : is(1) ? sum : power(sum, Real(1) / p);
  }

  LOSSCLI_HOST_DEVICE RowFinish<Real> finish(const RowFacts<Real>&, const RowTotals<Real>& totals,
                                             const Real (&incoming)[kMostOutputs]) const {
    Real norms[3], shares[3] = {Real(1), Real(1), Real(0)};
    for (int k = 0; k < 3; ++k) norms[k] = norm(totals.sums[k]);
    Real negative = norms[1];
    if (swaps()) {
      // Equal ones have half of the gradient each, as PyTorch's minimum.
      shares[1] = norms[1] == norms[2] ? Real(0.5) : Real(!(norms[2] < norms[1]));
      shares[2] = Real(1) - shares[1];
      negative = norms[2] < norms[1] ? norms[2] : norms[1];
    }
    const Real beyond = (norms[0] - negative) + margin;
    const Real slope = beyond >= Real(0) ? incoming[0] : Real(0);  // of NaN as PyTorch's clamp
    RowFinish<Real> result;
    result.values[0] = beyond < Real(0) ? Real(0) : beyond;
    for (int k = 0; k < 3; ++k) {
      const Real scale = is(1)   ? Real(1)
                         : is(2) ? Real(1) / norms[k]
                                 : power(norms[k], Real(1) - p);
      // The NaN of a distance that is not taken must not reach the others.
      const bool none = norms[k] == Real(0) || shares[k] == Real(0);
      result.factors[k] = none ? Real(0) : (k == 0 ? slope : -slope) * shares[k] * scale;
    }
    return result;
  }

  LOSSCLI_HOST_DEVICE void gradient(const RowFacts<Real>&, const RowFinish<Real>& finish,
                                    const RowElement<Real, 3>& e, Real (&out)[3]) const {
    Real found[3];
    differences(e, found);
    for (int k = 0; k < 3; ++k) {
      Real slope = found[k];
      if (is(1)) {
        slope = sign_of(slope);
      } else if (!is(2)) {
        const Real size = power(size_of(slope), p - Real(1));
        slope = select(slope == Real(0), Real(0), sign_of(slope) * size);
      }
      found[k] = select(finish.factors[k] == Real(0), Real(0), slope * finish.factors[k]);
    }
    out[0] = found[0] + found[1];
    out[1] = found[2] - found[0];
    out[2] = -(found[1] + found[2]);
  }

  Real margin, p, eps;
  bool swap;
};

template <typename Real>
struct triplet_margin : TripletMargin<Real, false> {
  using TripletMargin<Real, false>::TripletMargin;

  static constexpr bool has_usual = true;
  template <typename Number>
  using Usual = TripletMargin<Number, true>;
  static bool is_usual(const double* parameters) {
    return parameters[1] == 2 && parameters[3] == 0;
  }
};

}  // namespace losscli
