// What the torch layer asks of the kernels of a loss over rows on one device: plain data in, a
// status out.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/expectation.h"
#include "core/launch.h"
#include "core/platform.h"
#include "losses/rows/loss.h"

namespace losscli {

// The strides of a tensor in elements. Row r is row `r / inner` of the outer dimension and row
// `r % inner` of the inner one: logits of shape (N, C, d1, d2) have N outer and d1 * d2 inner rows.
struct RowStrides {
  int64_t outer = 0;
  int64_t inner = 0;
  int64_t element = 0;  // between the elements of a row

  LOSSCLI_HOST_DEVICE int64_t start(int64_t row, int64_t inner_rows) const {
    // A division costs as much as a short row.
    return inner_rows == 1 ? row * outer : row / inner_rows * outer + row % inner_rows * inner;
  }
};

// How row losses become the value.
enum class RowReduction : int32_t {
  none,  // one value for each row, or several
  sum,
  mean,  // their sum over the sum of what each row counts
};

// A row that does not count has a loss and gradients of 0. The loss and the gradients of a row
// whose label is no class are NaN on a GPU; on the CPU it is a failure.
struct RowArguments {
  int64_t outer = 0;
  int64_t inner = 1;
  int64_t length = 0;            // of a row
  DType dtype = DType::float32;  // of the operands, weight, values and gradients
  Guess guess = Guess::none;     // not none: grad_output is one number, or to come
  const void* operands[kMostRows] = {};
  RowStrides strides[kMostRows];

  const void* labels = nullptr;  // the number of a class for each row: int64, int32 or uint8
  DType labels_dtype = DType::int64;
  RowStrides label_strides;
  const void* targets = nullptr;  // another number for each row
  DType targets_dtype = DType::float32;
  RowStrides target_strides;
  const bool* mask = nullptr;  // whether a row counts; null where all do
  RowStrides mask_strides;
  const void* weight = nullptr;  // dense, of each class; null stands for 1
  double parameters[kMostRowParameters] = {};

  RowReduction reduction = RowReduction::mean;
  int32_t outputs = 1;    // values of a row, where there is no reduction
  bool wide = false;      // whether 16 bits give values in float
  void* value = nullptr;  // of each row, those of one output after those of another; or one number
  // Of the operands, null where not wanted. One may lie over its operand, with its strides.
  void* gradients[kMostRows] = {};
  RowStrides gradient_strides[kMostRows];

  // Multiplies the gradients: one number, or without a reduction one for each value. Null stands
  // for 1, and for 0 of other outputs.
  const void* grad_output = nullptr;
  DType grad_output_dtype = DType::float32;
  int64_t grad_output_stride = 0;         // between rows
  int64_t grad_output_output_stride = 0;  // between outputs
  Expectation* expectation = nullptr;     // on the device

  LOSSCLI_HOST_DEVICE int64_t rows() const { return outer * inner; }
  LOSSCLI_HOST_DEVICE bool wants_gradient() const {
    return gradients[0] || gradients[1] || gradients[2];
  }
};

// The class that does not count, of cross entropy.
LOSSCLI_HOST_DEVICE int64_t ignore_index(const RowArguments& arguments) {
  return static_cast<int64_t>(arguments.parameters[kIgnoreIndex]);
}

// The number of a row's class.
LOSSCLI_HOST_DEVICE int64_t read_label(const RowArguments& arguments, int64_t row) {
  const int64_t element = arguments.label_strides.start(row, arguments.inner);
  switch (arguments.labels_dtype) {
    case DType::int64:
      return static_cast<const int64_t*>(arguments.labels)[element];
    case DType::int32:
      return static_cast<const int32_t*>(arguments.labels)[element];
    default:
      return static_cast<const uint8_t*>(arguments.labels)[element];
  }
}

// The entry points of a library, which exports `losscli_row_kernels`.
struct RowKernels {
  uint64_t interface;  // kInterface of the sources that it was compiled from
  int32_t rows;
  int32_t parameters;
  bool reads;  // whether the loss reads rows: if not, gradients written ahead save nothing
  Needs (*needs)(const RowArguments&, const DeviceFacts&);
  Status (*run)(const RowArguments&, const LaunchContext&);
};

}  // namespace losscli
