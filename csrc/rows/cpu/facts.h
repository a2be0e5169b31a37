// What is known of the rows of a call before they are read: which count, their class indices and
// targets, what a mean divides by.
#pragma once

#include <cstdint>

#include "reduce/cpu/compensated.h"
#include "rows/cpu/incoming.h"
#include "rows/cpu/labels.h"
#include "rows/cpu/strided.h"

namespace losscli::cpu {

// Of rows side by side; see RowFacts. A row that does not count has the number of classes as label.
struct LaneFacts {
  alignas(64) int64_t counts[kLanes];  // 1, or 0
  alignas(64) int64_t label[kLanes];
  alignas(64) double target[kLanes], weight[kLanes], picked[kLanes];
};

// The facts of each row, and whether it counts. `Loss` is the functor in double.
template <typename Loss, typename Stored>
class Facts {
 public:
  Facts(const RowArguments& arguments, const Loss& loss) : arguments_(arguments), loss_(loss) {}

  bool counts(int64_t row) const {
    const RowArguments& a = arguments_;
    if (a.mask && !a.mask[a.mask_strides.start(row, a.inner)]) return false;
    return !Loss::labelled || !loss_.ignores(read_label(a, row));
  }

  RowFacts<double> of_row(int64_t row) const {
    RowFacts<double> facts;
    facts.length = arguments_.length;
    if constexpr (Loss::labelled) {
      facts.label = read_label(arguments_, row);
      facts.weight = class_weight<Stored>(arguments_, facts.label);
      const Strided<Stored> first(arguments_, 0, row);
      facts.picked = to_value<double>(first.data[facts.label * first.stride]);
    }
    if constexpr (Loss::targeted)
      facts.target = read_number(arguments_.targets, arguments_.targets_dtype,
                                 arguments_.target_strides.start(row, arguments_.inner));
    return facts;
  }

  // But what is picked.
  void of_rows(const RowSpan& rows, LaneFacts& facts) const {
    const RowArguments& a = arguments_;
    for (int lane = 0; lane < kLanes; ++lane) {
      facts.counts[lane] = lane < rows.count;
      facts.weight[lane] = 1;
    }
    if (a.mask) read_lanes(a.mask, Lanes(a.mask_strides, rows), rows.count, facts.counts);
    if constexpr (Loss::labelled) {
      alignas(64) int64_t buffer[kLanes];
      const int64_t* const labels = take_labels(a, rows, 0, buffer);
      for (int lane = 0; lane < kLanes; ++lane) {
        const int64_t counts = loss_.ignores(labels[lane]) ? 0 : facts.counts[lane];
        facts.counts[lane] = counts;
        facts.label[lane] = counts != 0 ? labels[lane] : a.length;
      }
      for (int lane = 0; a.weight && lane < kLanes; ++lane)
        if (facts.counts[lane] != 0)
          facts.weight[lane] = class_weight<Stored>(a, facts.label[lane]);
    }
    if constexpr (Loss::targeted)
      with_type(a.targets_dtype, [&](auto stored) {
        read_lanes(static_cast<const decltype(stored)*>(a.targets), Lanes(a.target_strides, rows),
                   rows.count, facts.target);
      });
  }

  // What a mean divides by. Throws where the label of a row that counts is no class.
  double check_and_count(const LaunchContext& context) const {
    if (!Loss::labelled && !arguments_.mask) return static_cast<double>(arguments_.rows());
    return check_labels<Compensated>(
        arguments_, context, Loss::mean_of_weights && arguments_.weight,
        [&](int64_t label) { return Loss::labelled && loss_.ignores(label); },
        [&](int64_t label) { return class_weight<Stored>(arguments_, label); });
  }

 private:
  const RowArguments& arguments_;
  const Loss& loss_;
};

}  // namespace losscli::cpu
