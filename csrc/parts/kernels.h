// What the torch layer asks of the kernels for rows whose classes are spread over parts, on one
// device: plain data in, a status out.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/launch.h"
#include "core/platform.h"

namespace losscli {

// The numbers that a part has of a row, then the entropy of its own probabilities, the sum of
// logits times weights of classes and the weight of the row's class, where these are asked for.
enum PartNumber {
  kLogProb,  // the log-probability of the row's class among the part's; any where it is another
  kTop,      // the largest logit before the temperature divides it; finite
  kLog,      // the logarithm of the sum of exponentials beside that one's
  kMore,
};

// Those that a part has for a divergence, and a row in the end.
enum DivergenceNumber { kDivergence, kTopP, kLogP, kTopQ, kLogQ, kDivergenceNumbers };

// What rows that have been reduced are summed up to.
enum RowTotal { kLoss, kWeight, kCounted, kRowTotals };

// As those of cross entropy; of divergences the temperature alone. With a softcap the logits are
// already bent and over the temperature where their numbers were taken.
struct PartSettings {
  int64_t classes = 0;  // of all parts
  int64_t ignored = 0;
  bool may_ignore = false;
  bool entropy = false;
  bool weighted = false;
  double smoothing = 0;
  double temperature = 1;
  double softcap = 0;
  double z_loss = 0;
  double inverse = 1;      // 1 / temperature: a kernel divides longer than it computes a class
  double inverse_cap = 0;  // 1 / (temperature * softcap)

  LOSSCLI_HOST_DEVICE double divisor() const { return softcap != 0 ? 1 : temperature; }
  LOSSCLI_HOST_DEVICE double inverse_divisor() const { return softcap != 0 ? 1 : inverse; }
  LOSSCLI_HOST_DEVICE int entropy_at() const { return kMore; }
  LOSSCLI_HOST_DEVICE int logits_at() const { return kMore + entropy; }
  LOSSCLI_HOST_DEVICE int weight_at() const { return kMore + entropy + (smoothing != 0); }
};

LOSSCLI_HOST_DEVICE bool is_plain(const PartSettings& settings) {
  return settings.softcap == 0 && settings.smoothing == 0 && !settings.entropy;
}

// The numbers of all parts, `part_stride` apart: within one those of all rows lie side by side.
// They and what they make are float, or double where `wide`.
struct JoinArguments {
  PartSettings settings;
  bool wide = false;
  int64_t rows = 0;
  int64_t parts = 0;
  const void* numbers = nullptr;
  int64_t part_stride = 0;
  const void* widths = nullptr;  // how many classes each part has
  DType widths_dtype = DType::int32;
  int64_t width_stride = 0;
  int64_t start = 0;  // the number of the first part's first class
  int64_t stop = 0;   // and of the first class behind all parts
  int64_t rank =
      -1;  // the part that has to begin at `first`, and all to end at `stop`: if not, rows
  int64_t first = 0;  // are NaN; -1 where this is known
  const int64_t* targets = nullptr;
  const bool* mask = nullptr;          // divergences: whether a row counts; null where all do
  const void* total_weight = nullptr;  // of all classes; null where each weighs 1
  void* whole = nullptr;               // the numbers of all parts together
  void* values = nullptr;              // losses; the totals of each row, or with entropies two
};

constexpr int kMostPartOperands = 2;

struct PartGradientArguments {
  PartSettings settings;
  DType dtype = DType::float32;  // of logits and gradients
  int64_t rows = 0;
  int64_t width = 0;  // classes of this part
  int64_t first = 0;  // the number of its first
  const void* logits[kMostPartOperands] = {};
  int64_t row_strides[kMostPartOperands] = {};
  void* gradients[kMostPartOperands] = {};  // dense; null where not wanted
  const int64_t* targets = nullptr;
  const bool* mask = nullptr;
  const void* whole = nullptr;  // double for logits of double, else float, as the weights are
  const void* weight = nullptr;
  const void* total_weight = nullptr;
  const double* totals = nullptr;  // of a mean
  const void* incoming = nullptr;
  DType incoming_dtype = DType::float32;
  int64_t incoming_stride = 0;         // between rows
  int64_t incoming_output_stride = 0;  // between log-probabilities and entropies
};

// The entry points of a library, which exports `losscli_part_kernels`.
struct PartKernels {
  uint64_t interface;
  Status (*join)(const JoinArguments&, const LaunchContext&);
  Status (*join_divergences)(const JoinArguments&, const LaunchContext&);
  Status (*gradient)(const PartGradientArguments&, const LaunchContext&);
  Status (*divergence_gradients)(const PartGradientArguments&, const LaunchContext&);
};

}  // namespace losscli
