// What is known of the rows of a call before they are read: which count, their class numbers and
// targets, what a mean divides by.
#pragma once

#include <cstdint>

#include "reduce/cpu/compensated.h"
#include "rows/cpu/incoming.h"
#include "rows/cpu/labels.h"
#include "rows/cpu/strided.h"

namespace losscli::cpu {

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

  // What a mean divides by. Throws where the label of a row that counts is no class.
  double check_and_count(const LaunchContext& context) const {
    if (!Loss::labelled && !arguments_.mask) return static_cast<double>(arguments_.rows());
    return check_labels<Compensated>(
        arguments_, context, [&](int64_t row) { return counts(row); },
        [&](int64_t label) {
          return Loss::mean_of_weights ? class_weight<Stored>(arguments_, label) : 1.0;
        });
  }

 private:
  const RowArguments& arguments_;
  const Loss& loss_;
};

}  // namespace losscli::cpu
