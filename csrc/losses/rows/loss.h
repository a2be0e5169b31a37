// What the header of a loss over rows is made of: a functor over the rows of one to three operands.
//
// A functor is a template on Real (float or double), derived from RowLoss<rows, parameters>,
// constructed from its parameters as doubles. What it asks for stands in constants, which replace
// those of RowLoss; the walk over the rows (csrc/rows) computes it. Then
//   RowFinish<Real> finish(const RowFacts<Real>& facts, const RowTotals<Real>& totals,
//                          const Real (&incoming)[kMostOutputs])
//     the value or the values of a row, and what its gradients have in common, which are for the
//     upstream gradient of each value
//   void gradient(const RowFacts<Real>& facts, const RowFinish<Real>& finish,
//                 const RowElement<Real, rows>& element, Real (&out)[rows])
//     the gradients of one element
// and where the constants ask for sums over the elements
//   void add(const RowFacts<Real>& facts, const RowElement<Real, rows>& element,
//            Real (&to)[sums])
//     adds what an element is to the sums of the first pass
//   void add_later(const RowElement<Real, rows>& element, Real (&to)[later_sums])
//     adds what an element is to the sums of the second pass, which knows the probabilities
//   void bend(Real x, Real& bent, Real& slope)
//     a logit as all else takes it, and the derivative of that
//   Real share(const RowFacts<Real>& facts, const Real (&x)[rows], Real weight)
//     what multiplies the negative logarithm of a class's probability in the loss of its row
// They run on host and device, without branches that a vectoriser cannot turn into selects. Names,
// defaults and domains are in the loss's Python file.
#pragma once

#include <cstdint>

#include "core/math.h"
#include "core/platform.h"

namespace losscli {

constexpr int kMostRows = 3;
constexpr int kMostOutputs = 5;
constexpr int kMostRowSums = 5;
constexpr int kMostRowParameters = 5;
constexpr int kMostRowFactors = 6;

// The parameters of cross entropy, in the order of its Python file, for the walks of its own.
enum CrossEntropyParameter {
  kIgnoreIndex,     // the number of a class that leaves a row out
  kLabelSmoothing,  // s
  kTemperature,     // divides the logits
  kSoftcap,         // then x becomes softcap * tanh(x / softcap); 0 stands for none
  kZLoss,
};

// A sum over the elements of e_w * (c_0 * d_0 + c_1 * d_1 + ...): with e_w the exponential of
// operand w, and d_k how far an element is below the largest of operand k, over the temperature.
struct DistanceSum {
  int weight = -1;  // -1: no such sum
  int factors[kMostRows] = {};
};

template <int row_count, int parameter_count>
struct RowLoss {
  static constexpr int rows = row_count;
  static constexpr int parameter_total = parameter_count;

  // Whether the rows are logits, of which the walk takes exponentials, but for the last operands,
  // so many of which are plain numbers; and which parameter is the temperature.
  static constexpr bool logits = false;
  static constexpr int plain_rows = 0;
  static constexpr int temperature = 0;
  // Whether logits are bent, and whether each class has a share of the loss, which the walk sums
  // up. On the CPU no loss has either but cross entropy, in walks of its own.
  static constexpr bool bends = false;
  static constexpr bool shares = false;
  static constexpr DistanceSum distance{};
  static constexpr int sums = 0;
  static constexpr int later_sums = 0;
  // How many of either, the last ones, gradients alone need.
  static constexpr int gradient_sums = 0;
  // Whether each row has the number of a class. Its exponential is kept apart from the others.
  static constexpr bool labelled = false;
  // Whether each row has a number of its own besides, such as 1 or -1.
  static constexpr bool targeted = false;
  // Whether a mean is over the weights of the classes of the rows.
  static constexpr bool mean_of_weights = false;
  // Whether the rows are read at all, but for the element of their class: if not, all gradients but
  // that element's are 0.
  static constexpr bool reads = true;
  // Whether it is cross entropy, for which there are walks of its own.
  static constexpr bool is_cross_entropy = false;
  // Whether `is_usual(parameters)` says that `Usual<Real>`, a functor which computes less, does.
  static constexpr bool has_usual = false;

  // The number of a class that leaves a row out; none, unless the functor says so.
  LOSSCLI_HOST_DEVICE bool ignores(int64_t) const { return false; }
};

// What is known of a row before it is read.
template <typename Real>
struct RowFacts {
  int64_t length = 0;
  Real even = 0;  // 1 / length, where classes have shares
  int64_t label = -1;
  Real target = 0;  // the row's number
  Real weight = 1;  // of the row's class
  Real picked = 0;  // the element of the row's class, of the first operand
};

// What the passes over a row have found.
template <typename Real>
struct RowTotals {
  // Logits: the logarithm of the sum of the exponentials of x - the largest, over the temperature.
  Real logarithm[kMostRows] = {};
  Real largest[kMostRows] = {};  // the largest logit, over the temperature
  Real tops[kMostRows] = {};     // before the temperature divides it
  Real distance = 0;  // the sum of distances over the sum of the exponentials that weigh them
  // The sum of the shares of all classes, and of each times how far its logit is below the largest.
  Real shared = 0;
  Real below = 0;
  // With a class: what the exponentials of the class and of all others are of their sum, and minus
  // the logarithm of the first.
  Real own = 0;
  Real others = 0;
  Real surprise = 0;
  Real sums[kMostRowSums] = {};
  Real later[kMostRowSums] = {};
};

template <typename Real>
struct RowFinish {
  Real values[kMostOutputs] = {};
  Real factors[kMostRowFactors] = {};
};

// One element of each operand.
template <typename Real, int rows>
struct RowElement {
  Real x[rows];     // as it lies in memory
  Real p[rows];     // logits: its probability
  Real d[rows];     // logits: how far it is below the largest, over the temperature
  Real label_mark;  // 1 for the element of the row's class, else 0
  // Where classes have shares and where logits are bent.
  Real weight = 1;  // of the element's class
  Real slope = 1;   // the derivative of the bent logit
};

// A largest logit, finite in float also where no class is possible.
template <typename Real>
LOSSCLI_HOST_DEVICE Real finite_top(Real top) {
  constexpr Real kLowest = static_cast<Real>(-3.4028234663852886e38);
  return top < kLowest ? kLowest : top;
}

// a where `condition`, else b: never a product, in which 0 times infinity is NaN.
template <typename Real>
LOSSCLI_HOST_DEVICE Real select(bool condition, Real a, Real b) {
  return condition ? a : b;
}

// p * slope of a probability: not of 0, for which the slope may be infinite, and not of 1, for
// which it is 0 but for the rounding of a sum.
template <typename Real>
LOSSCLI_HOST_DEVICE Real weighed(Real p, Real slope) {
  return select(p == Real(0) || p == Real(1), Real(0), p * slope);
}

LOSSCLI_HOST_DEVICE float root(float x) { return __builtin_sqrtf(x); }
LOSSCLI_HOST_DEVICE double root(double x) { return __builtin_sqrt(x); }
LOSSCLI_HOST_DEVICE float size_of(float x) { return __builtin_fabsf(x); }
LOSSCLI_HOST_DEVICE double size_of(double x) { return __builtin_fabs(x); }

template <typename Real>
LOSSCLI_HOST_DEVICE Real sign_of(Real x) {
  return Real(x > Real(0)) - Real(x < Real(0));
}

}  // namespace losscli
