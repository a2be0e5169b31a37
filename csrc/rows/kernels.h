// What the torch layer asks of the kernels of one loss over rows on one device: plain data in, a
// status out.
//
// A row is a vector of classes: logits for which a target is known, the number of a class or a
// probability for each class.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/expectation.h"
#include "core/launch.h"
#include "core/platform.h"

namespace losscli {

// The strides of a tensor in elements. Row r is row `r / inner` of the outer dimension and row
// `r % inner` of the inner one: logits of shape (N, C, d1, d2) have N outer and d1 * d2 inner rows.
struct RowStrides {
  int64_t outer = 0;
  int64_t inner = 0;
  int64_t classes = 0;  // between the classes of a row

  LOSSCLI_HOST_DEVICE int64_t start(int64_t row, int64_t inner_rows) const {
    // A division costs as much as a short row.
    return inner_rows == 1 ? row * outer : row / inner_rows * outer + row % inner_rows * inner;
  }
};

// The dtype of class numbers.
enum class IndexType : int32_t { int64, int32, uint8 };

// How row losses become the value.
enum class RowReduction : int32_t {
  none,  // one value for each row
  sum,
  mean,  // their sum over the sum of the weights of the rows' targets, those of ignored rows left
         // out; with probabilities over the number of rows
};

// The loss of a row with logits x (after temperature and softcap, see below), weights w and K
// classes is, with lse = log(sum of exp(x_c)) and smoothing s,
//   for a target t:        (1 - s) * w_t * (lse - x_t) + s / K * sum of w_c * (lse - x_c)
//   for probabilities p:   sum of w_c * (p_c * (1 - s) + s / K) * (lse - x_c)
// and, added to both, z_loss * lse * lse. An ignored row's loss and gradient are 0. The loss and
// the gradient of a row whose target is no class are NaN on a GPU; on the CPU it is a failure.
struct RowArguments {
  int64_t outer = 0;
  int64_t inner = 1;
  int64_t classes = 0;
  DType dtype = DType::float32;  // of logits, probabilities, weight, value and gradient
  const void* logits = nullptr;
  RowStrides logits_strides;

  // Either one class number for each row, or a probability for each class.
  const void* targets = nullptr;
  RowStrides target_strides;
  IndexType index = IndexType::int64;
  bool probabilities = false;

  const void* weight = nullptr;  // dense, for each class; null stands for 1
  int64_t ignore_index = -100;
  double label_smoothing = 0;
  double temperature = 1;  // divides the logits
  double softcap = 0;      // then x becomes softcap * tanh(x / softcap); 0 stands for none
  double z_loss = 0;

  RowReduction reduction = RowReduction::mean;
  void* value = nullptr;  // one for each row, dense, or one; null where not wanted
  // Of the logits, null where not wanted. It may lie over the logits, with their strides.
  void* gradient = nullptr;
  RowStrides gradient_strides;

  // Multiplies the gradients: one number, or without a reduction one for each row with a stride;
  // null stands for 1.
  const void* grad_output = nullptr;
  DType grad_output_dtype = DType::float32;
  int64_t grad_output_stride = 0;
  Expectation* expectation = nullptr;  // on the device
  Guess guess = Guess::none;           // not none: grad_output is one number, or to come

  // For each row, dense, in float (double where `dtype` is float64); null where not wanted.
  void* log_sum_exp = nullptr;
  // For each row, dense: whether its largest logit is its target's. Null where not wanted.
  bool* correct = nullptr;

  LOSSCLI_HOST_DEVICE int64_t rows() const { return outer * inner; }
};

// The entry points of a library, which exports `losscli_row_kernels`.
struct RowKernels {
  uint64_t interface;  // kInterface of the sources that it was compiled from
  Needs (*needs)(const RowArguments&, const DeviceFacts&);
  Status (*run)(const RowArguments&, const LaunchContext&);
};

using GetRowKernels = const RowKernels* (*)();

}  // namespace losscli
