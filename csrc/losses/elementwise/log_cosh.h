// Log-cosh: log(cosh(input - target)), quadratic near zero and linear far from it.
// Smooth everywhere; the gradient is tanh(input - target).
#pragma once

#include "core/polynomial.h"
#include "losses/elementwise/loss.h"

namespace losscli {

template <typename Real>
struct log_cosh {
  static constexpr Signature<2, 0> signature{{"input", "target"}, {}};
  static constexpr bool costly = true;

  explicit log_cosh(const double*) {}

  LOSSCLI_HOST_DEVICE Real value(const Real (&x)[2]) const {
    const Real distance = absolute(x[0] - x[1]);
    // Neither cancels where it is chosen: the difference with log(2) is at least 0.1 there.
    const Real square = distance * distance;
    const Real near = square * (Real(0.5) + square * series(square));
    const Real far = (distance - kLogTwo) + softplus_tail(Real(2) * distance);
    return distance < kBorder ? near : far;
  }

  LOSSCLI_HOST_DEVICE void gradient(const Real (&x)[2], Real incoming, Real (&out)[2]) const {
    out[0] = incoming * hyperbolic_tangent(x[0] - x[1]);
    out[1] = -out[0];
  }

  LOSSCLI_HOST_DEVICE void hessian_product(const Real (&x)[2], const Real (&v)[2],
                                           Real (&out)[2]) const {
    // 1 / cosh^2, in which nothing overflows and nothing cancels.
    const Real twice = Real(2) * (x[0] - x[1]);
    const Real curvature = Real(4) * sigmoid(twice) * sigmoid(-twice);
    out[0] = curvature * (v[0] - v[1]);
    out[1] = -out[0];
  }

 private:
  static constexpr Real kLogTwo = Real(0.693147180559945309417);
  static constexpr Real kBorder = Real(0.8);

  // (log(cosh(d)) / d^2 - 1/2) / d^2 of the square of d up to the border: minimax, by Remez's
  // algorithm, within 2^-29.3 and 2^-59.1.
  LOSSCLI_HOST_DEVICE static float series(float square) {
    return polynomial(square, -0x1.555554p-4f, 0x1.6c160ap-6f, -0x1.b9e562p-8f, 0x1.1bacfcp-9f,
                      -0x1.5c89c8p-11f, 0x1.21452ap-13f);
  }
  LOSSCLI_HOST_DEVICE static double series(double square) {
    return polynomial(square, -0x1.5555555555555p-4, 0x1.6c16c16c16b16p-6, -0x1.ba1ba1ba05465p-8,
                      0x1.1ea5d395aec99p-9, -0x1.833d9abf71e0fp-11, 0x1.0d0b2cd574e0cp-12,
                      -0x1.7d9f3b6665892p-14, 0x1.12d1a7503e8b0p-15, -0x1.8f2df396f76c8p-17,
                      0x1.1e6dc8554da63p-18, -0x1.7cb3095046d91p-20, 0x1.90ff66a048248p-22,
                      -0x1.d6582dcf1e554p-25);
  }
};

}  // namespace losscli
