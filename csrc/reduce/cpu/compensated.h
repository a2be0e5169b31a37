// A double sum that carries the error of its own additions.
//
// A mean of 65,537 equal numbers is off by 6 units in the last place if doubles are added in lanes,
// and correctly rounded with the errors carried along.
#pragma once

#include <cmath>
#include <cstdint>

namespace losscli::cpu {

// Knuth's two-sum: leaves a + b, rounded, in `a` and returns what rounding lost. Right whichever of
// the two is larger, so that it vectorises; NaN where the sum is not finite.
inline __attribute__((always_inline)) double two_sum(double& a, double b) {
  const double sum = a + b;
  const double added = sum - a;
  const double lost = (a - (sum - added)) + (b - added);
  a = sum;
  return lost;
}

struct Compensated {
  double sum = 0;
  double rest = 0;  // what `sum` lacks

  void add(double value) { rest += two_sum(sum, value); }

  void add(const Compensated& other) {
    add(other.sum);
    rest += other.rest;
  }

  // An infinite or unordered sum has no error worth knowing.
  double total() const { return std::isfinite(rest) ? sum + rest : sum; }
};

// The sum times `scale`, rounded about once. A mean of `count` numbers is divided by their count:
// its scale, 1 / count, is rounded already.
inline double scaled(const Compensated& total, double scale, int64_t count) {
  const double plain = total.total() * scale;
  const double sum = total.sum;
  double precise;
  if (count > 0 && scale == 1.0 / static_cast<double>(count)) {
    const auto divisor = static_cast<double>(count);
    const double quotient = sum / divisor;
    precise = quotient + (std::fma(-quotient, divisor, sum) + total.rest) / divisor;
  } else {
    const double product = sum * scale;
    precise = product + (std::fma(sum, scale, -product) + total.rest * scale);
  }
  return std::isfinite(precise) ? precise : plain;
}

}  // namespace losscli::cpu
