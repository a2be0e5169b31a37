// Logits and their exponentials as the kernel for all rows takes them.
#pragma once

#include <cfloat>
#include <cmath>

#include "rows/cross_entropy.h"
#include "rows/cuda/state.cuh"

namespace losscli::cuda {

// In float: powers of two, as the other kernels have them.
template <typename Stored, typename Real>
class AnyPowers {
 public:
  __device__ __forceinline__ explicit AnyPowers(double temperature) : scale_(temperature) {}

  __device__ __forceinline__ float reference(float top) const { return scale_.reference(top); }
  __device__ __forceinline__ float power(float logit, float reference) const {
    return scale_.template any_power<Stored>(logit, reference);
  }
  // What a sum of powers is multiplied by for another reference.
  __device__ __forceinline__ float between(float from, float to) const {
    return power_of_two(from - to);
  }
  // A logit over the temperature, as the powers have it.
  __device__ __forceinline__ double over(float logit) const {
    return logit * (static_cast<double>(scale_.high) + scale_.low) * 0.6931471805599453;
  }

 private:
  RowScale scale_;
};

template <typename Stored>
class AnyPowers<Stored, double> {
 public:
  __device__ __forceinline__ explicit AnyPowers(double temperature) : temperature_(temperature) {}

  __device__ __forceinline__ double reference(double top) const {
    return fmax(top / temperature_, -DBL_MAX);
  }
  __device__ __forceinline__ double power(double logit, double reference) const {
    return exp(logit / temperature_ - reference);
  }
  __device__ __forceinline__ double between(double from, double to) const { return exp(from - to); }
  __device__ __forceinline__ double over(double logit) const { return logit / temperature_; }

 private:
  double temperature_;
};

// A stored logit, with a softcap after that and the temperature; otherwise the powers take the
// temperature. And the derivative of the capped logit by the stored one, over the temperature.
template <typename Stored, typename Real>
struct AnyLogits {
  Real temperature, cap;

  __device__ __forceinline__ explicit AnyLogits(const RowArguments& arguments)
      : temperature(static_cast<Real>(arguments.parameters[kTemperature])),
        cap(static_cast<Real>(arguments.parameters[kSoftcap])) {}

  __device__ __forceinline__ static double powers_temperature(const RowArguments& arguments) {
    return arguments.parameters[kSoftcap] == 0 ? arguments.parameters[kTemperature] : 1.0;
  }

  __device__ __forceinline__ Real bent(Real raw) const { return tanh(raw / temperature / cap); }
  __device__ __forceinline__ Real operator()(Stored stored) const {
    const Real raw = widen(stored);
    return cap == 0 ? raw : cap * bent(raw);
  }
  __device__ __forceinline__ Real slope(Stored stored) const {
    if (cap == 0) return 1 / temperature;
    const Real of_cap = bent(widen(stored));
    return (1 - of_cap * of_cap) / temperature;
  }
};

// What a thread has of a row. The target's power is no part of the sum, so that neither a loss nor
// a gradient near 0 loses its digits.
template <typename Real>
struct AnyState {
  // Finite where all logits are -inf, whose exponentials are then 0 and not NaN.
  Real top = -(sizeof(Real) == 8 ? static_cast<Real>(DBL_MAX) : static_cast<Real>(FLT_MAX));
  Real reference = top;
  Real sum = 0;      // of the powers, for the reference
  Real counted = 0;  // the sum of what each class counts
  Real below = 0;    // the sum of what each class counts times how far it is below the top
  // What the roundings of each lost, of float.
  Real lost = 0, counted_lost = 0, below_lost = 0;

  template <typename Powers>
  __device__ __forceinline__ void raise(Real to, const Powers& powers) {
    if (!(to > top)) return;
    const Real next = powers.reference(to), less = powers.between(reference, next);
    // The powers of the largest of very low logits may be infinite in 16 bits.
    const Real most = sizeof(Real) == 8 ? static_cast<Real>(DBL_MAX) : static_cast<Real>(FLT_MAX);
    sum = (sum > most ? most : sum) * less;
    lost *= less;
    if (counted != 0) below += (counted + counted_lost) * (to - top);
    top = to;
    reference = next;
  }

  // A thread may have thousands of them.
  template <bool careful>
  __device__ __forceinline__ void add_power(Real power) {
    keep<careful>(sum, lost, power);
  }
  template <bool careful>
  __device__ __forceinline__ void add_count(Real count, Real distance) {
    keep<careful>(counted, counted_lost, count);
    if (count != 0) keep<careful>(below, below_lost, count * distance);
  }

  __device__ __forceinline__ void settle() {
    sum += lost;
    counted += counted_lost;
    below += below_lost;
    lost = counted_lost = below_lost = 0;
  }

  template <typename Powers>
  __device__ __forceinline__ void add(AnyState other, const Powers& powers) {
    raise(other.top, powers);
    other.raise(top, powers);
    sum += other.sum;
    counted += other.counted;
    below += other.below;
  }

  template <bool careful>
  __device__ __forceinline__ static void keep(Real& sum, Real& lost, Real value) {
    if constexpr (careful) {
      const Real before = sum;
      sum = before + value;
      // Of what is infinite nothing is lost.
      const Real rounded = value - (sum - before);
      lost += rounded == rounded ? rounded : Real(0);
    } else {
      sum += value;
    }
  }

  __device__ __forceinline__ AnyState from_lane(int distance) const {
    AnyState other;
    other.top = __shfl_xor_sync(~0u, top, distance);
    other.reference = __shfl_xor_sync(~0u, reference, distance);
    other.sum = __shfl_xor_sync(~0u, sum, distance);
    other.counted = __shfl_xor_sync(~0u, counted, distance);
    other.below = __shfl_xor_sync(~0u, below, distance);
    return other;
  }
};

}  // namespace losscli::cuda
