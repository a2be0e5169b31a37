// A loss with a weight, for any loss: weight * loss, with the weight as its last operand.
//
// Compiled with -DLOSSCLI_LOSS=weighted_mse and the loss that it wraps: -DLOSSCLI_WEIGHTED=mse and
// -DLOSSCLI_WEIGHTED_HEADER='"losses/elementwise/mse.h"'. NaN, infinities and 0 times infinity come
// out as in PyTorch's `loss * weight`, differentiated by autograd: a weight of 0 leaves NaN of an
// infinite loss, and what a loss lets pass of no upstream gradient it lets pass of none times a
// weight.
#pragma once

#include "losses/elementwise/loss.h"
#include LOSSCLI_WEIGHTED_HEADER

namespace losscli {

template <int operands, int parameters>
constexpr Signature<operands + 1, parameters> with_weight(
    const Signature<operands, parameters>& inner) {
  Signature<operands + 1, parameters> outer{};
  for (int k = 0; k < operands; ++k) outer.operand_names[k] = inner.operand_names[k];
  outer.operand_names[operands] = "weight";
  outer.parameters = inner.parameters;
  return outer;
}

template <typename Inner, typename Real>
struct weighted {
  static constexpr int inner_operands = Inner::signature.operands;
  static constexpr auto signature = with_weight(Inner::signature);
  static constexpr bool costly = is_costly<Inner>;

  Inner inner;

  explicit weighted(const double* values) : inner(values) {}

  bool is_usual() const { return inner.is_usual(); }

  template <typename Same = Inner, typename = std::enable_if_t<has_usual_form<Same>>>
  LOSSCLI_HOST_DEVICE weighted usual_form() const {
    weighted usual = *this;
    usual.inner = inner.usual_form();
    return usual;
  }

  LOSSCLI_HOST_DEVICE Real value(const Real (&x)[inner_operands + 1]) const {
    return inner.value(without_weight(x)) * x[inner_operands];
  }

  LOSSCLI_HOST_DEVICE void gradient(const Real (&x)[inner_operands + 1], Real incoming,
                                    Real (&out)[inner_operands + 1]) const {
    const auto& operands = without_weight(x);
    inner.gradient(operands, incoming * x[inner_operands], without_weight(out));
    out[inner_operands] = incoming * inner.value(operands);
  }

  // Of weight * loss: the weight times the loss's own second derivatives, and the loss's gradient
  // where the weight meets another operand.
  LOSSCLI_HOST_DEVICE void hessian_product(const Real (&x)[inner_operands + 1],
                                           const Real (&v)[inner_operands + 1],
                                           Real (&out)[inner_operands + 1]) const {
    const auto& operands = without_weight(x);
    Real own[inner_operands];
    inner.hessian_product(operands, without_weight(v), own);
    Real mixed[inner_operands];
    inner.gradient(operands, v[inner_operands], mixed);
    Real slopes[inner_operands];
    inner.gradient(operands, Real(1), slopes);
    Real of_weight = Real(0);
    for (int k = 0; k < inner_operands; ++k) {
      out[k] = x[inner_operands] * own[k] + mixed[k];
      of_weight += slopes[k] * v[k];
    }
    out[inner_operands] = of_weight;
  }

 private:
  // The first operands of an array, which are the inner loss's own, as an array.
  template <typename Number>
  LOSSCLI_HOST_DEVICE static auto& without_weight(Number (&x)[inner_operands + 1]) {
    return reinterpret_cast<Number(&)[inner_operands]>(x);
  }
};

template <typename Real>
using LOSSCLI_LOSS = weighted<LOSSCLI_WEIGHTED<Real>, Real>;

}  // namespace losscli
