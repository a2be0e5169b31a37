// What the torch layer asks of the kernels of a loss over rows that is a functor: plain data in, a
// status out.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/expectation.h"
#include "core/launch.h"
#include "losses/rows/loss.h"
#include "rows/kernels.h"

namespace losscli {

struct FunctorArguments {
  int64_t outer = 0;
  int64_t inner = 1;
  int64_t length = 0;            // of a row
  DType dtype = DType::float32;  // of the operands, weight, values and gradients
  const void* operands[kMostRows] = {};
  RowStrides strides[kMostRows];

  const void* labels = nullptr;  // one for each row: the number of a class, or another number
  DType labels_dtype = DType::int64;
  RowStrides labels_strides;
  const bool* mask = nullptr;  // whether a row counts; null where all do
  RowStrides mask_strides;
  const void* weight = nullptr;  // dense, of each class; null stands for 1
  double parameters[kMostRowParameters] = {};

  RowReduction reduction = RowReduction::mean;
  int32_t outputs = 1;    // values of a row, where there is no reduction
  bool wide = false;      // whether 16 bits give values in float
  void* value = nullptr;  // of each row, those of one output after those of another; or one number
  void* gradients[kMostRows] = {};  // null where not wanted
  RowStrides gradient_strides[kMostRows];

  // Multiplies the gradients: one number, or without a reduction one for each value. Null stands
  // for 1, and for 0 of the second output.
  const void* grad_output = nullptr;
  DType grad_output_dtype = DType::float32;
  int64_t grad_output_stride = 0;         // between rows
  int64_t grad_output_output_stride = 0;  // between outputs
  Expectation* expectation = nullptr;     // on the device
  Guess guess = Guess::none;              // not none: grad_output is one number, or to come

  LOSSCLI_HOST_DEVICE int64_t rows() const { return outer * inner; }
  LOSSCLI_HOST_DEVICE bool wants_gradient() const {
    return gradients[0] || gradients[1] || gradients[2];
  }
};

// The entry points of a library, which exports `losscli_functor_kernels`.
struct FunctorKernels {
  uint64_t interface;  // kInterface of the sources that it was compiled from
  int32_t rows;
  int32_t parameters;
  Needs (*needs)(const FunctorArguments&, const DeviceFacts&);
  Status (*run)(const FunctorArguments&, const LaunchContext&);
};

using GetFunctorKernels = const FunctorKernels* (*)();

}  // namespace losscli
