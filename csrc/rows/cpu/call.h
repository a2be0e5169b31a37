// What all rows of one call have in common.
#pragma once

#include <vector>

#include "elementwise/cpu/convert.h"
#include "elementwise/cpu/stream.h"
#include "rows/cpu/formula.h"
#include "rows/cpu/incoming.h"
#include "rows/cpu/labels.h"
#include "rows/cpu/strided.h"
#include "rows/cpu/transform.h"
#include "rows/cpu/value.h"

namespace losscli::cpu {

constexpr int64_t kNoTarget = -1;  // of an ignored row

// `Real` is double for float and 16 bits too where the logits are transformed.
template <typename Stored, typename Real>
struct Call {
  const RowArguments& arguments;
  RowIncoming incoming;
  Transform transform;
  Formula formula;
  Kind kind;
  double divisor = 1;         // of a mean
  double gradient_scale = 1;  // of all gradients: 1 / divisor, 1 / temperature
  bool gradient;              // whether it is to be computed
  bool streamed = false;      // whether it goes past the caches
  bool transformed;

  // May throw where a target is no class or memory runs out.
  Call(const RowArguments& given, const LaunchContext& context)
      : arguments(given), incoming(given), transform(given) {
    kind = given.operands[1]                        ? Kind::probabilities
           : given.parameters[kLabelSmoothing] != 0 ? Kind::smoothed
                                                    : Kind::number;
    formula.hard = 1 - given.parameters[kLabelSmoothing];
    formula.share = given.parameters[kLabelSmoothing] / static_cast<double>(given.length);
    formula.z_loss = given.parameters[kZLoss];
    // In the order of the rows, whatever the number of threads is.
    const double weights = given.operands[1] ? 0
                                             : check_labels<PlainSum>(
                                                   given, context, given.weight,
                                                   [&](int64_t label) { return ignores(label); },
                                                   [&](int64_t label) { return weight(label); });
    if (given.reduction == RowReduction::mean)
      divisor = given.operands[1] ? rows_with_classes() : weights;
    gradient_scale = 1 / divisor / transform.temperature;
    gradient = given.gradients[0] && incoming.wanted();
    transformed = transform.wanted();
    if (kind != Kind::number) take_weights();
    const int64_t bytes = given.rows() * given.length * static_cast<int64_t>(sizeof(Stored));
    streamed = bytes >= kStreamBytes && given.gradients[0] != given.operands[0] &&
               given.gradient_strides[0].element == 1 && can_stream(aligned(given.gradients[0]));
  }

  // The class of a row, kNoTarget where the row is ignored or has probabilities.
  int64_t target(int64_t row) const {
    if (arguments.operands[1]) return kNoTarget;
    const int64_t number = read_label(arguments, row);
    return ignores(number) ? kNoTarget : number;
  }

  // The same of rows side by side; the number of classes stands for none.
  template <typename Index>
  void targets(const RowSpan& rows, Index* to) const {
    const int64_t none = arguments.length;
    if (arguments.operands[1]) return void(std::fill_n(to, kLanes, static_cast<Index>(none)));
    alignas(kLine) int64_t buffer[kLanes];
    const int64_t ignored = ignore_index(arguments);
    const int64_t* const labels = take_labels(arguments, rows, ignored, buffer);
    for (int lane = 0; lane < kLanes; ++lane)
      to[lane] = static_cast<Index>(labels[lane] == ignored ? none : labels[lane]);
  }

  double weight(int64_t number) const { return class_weight<Stored>(arguments, number); }

  // Of a group of classes; not for Kind::number.
  const Real* weights(int64_t first) const {
    return weights_.data() + (arguments.weight ? first : 0);
  }

  Stored* gradients(int64_t row) const {
    return static_cast<Stored*>(arguments.gradients[0]) +
           arguments.gradient_strides[0].start(row, arguments.inner);
  }

  void put_loss(int64_t row, double value) const {
    if (arguments.value && arguments.reduction == RowReduction::none)
      put<Stored>(arguments, row, value);
  }

 private:
  bool ignores(int64_t label) const { return label == ignore_index(arguments); }

  // NaN where there are no classes, as in PyTorch.
  double rows_with_classes() const {
    const auto classes = static_cast<double>(arguments.length);
    return static_cast<double>(arguments.rows()) * classes / classes;
  }

  // Whether a row of the gradient has an element at the beginning of a line follows its address.
  static const void* aligned(const void* data) {
    return reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(data) / kLine * kLine);
  }

  // As Real, with a group of zeros behind them; one group of ones where there are none.
  void take_weights() {
    const int64_t classes = arguments.length;
    if (!arguments.weight) {
      weights_.assign(kGroup, Real(1));
      formula.total_weight = static_cast<double>(classes);
      return;
    }
    weights_.assign(classes + kGroup, Real(0));
    for (int64_t c = 0; c < classes; ++c) {
      weights_[c] = static_cast<Real>(weight(c));
      formula.total_weight += weight(c);
    }
  }

  std::vector<Real> weights_;
};

}  // namespace losscli::cpu
