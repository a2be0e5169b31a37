"""Mistakes in the CPU's kernels of row-wise losses: the walks, the sums of a row, its gradient.

Rows of 101 classes are walked in panels, those of 1001 one by one, a single long one in pieces.
"""

from __future__ import annotations

from .mutation import Mutation

PLAIN = ("cross_entropy",)
"""Also with settings, of which `smoke` has a table."""
WEIGHTED = ("weighted_cross_entropy",)
PROBABILITIES = ("cross_entropy_with_probabilities",)
DIGITS = (
    "errors are in ULP of an element's largest term, of which the lost digits are a tiny part; "
    "tests/kernels/test_row_digits.py finds it"
)

ROW = (
    Mutation(
        "rows/cpu/row.h",
        "for (int64_t i = first; i < last; i += kGroup) {\n"
        "    const int64_t count = std::min<int64_t>(kGroup, last - i);\n"
        "    const Real* const z = keeps_logits_ ? kept_ + i : logits(i, count, z_buffer);",
        "for (int64_t i = first; i + kGroup <= last; i += kGroup) {\n"
        "    const int64_t count = std::min<int64_t>(kGroup, last - i);\n"
        "    const Real* const z = keeps_logits_ ? kept_ + i : logits(i, count, z_buffer);",
        "classes that do not fill a group are not added up",
        PLAIN,
    ),
    Mutation(
        "rows/cpu/row.h",
        "lane < kGroup; ++lane) exponentials[lane] = unit_exponential(z[lane], max);",
        "lane < kGroup; ++lane) exponentials[lane] = unit_exponential(z[lane], Real(0));",
        "the largest logit is not subtracted",
        PLAIN,
    ),
    Mutation(
        "rows/cpu/row.h",
        "for (int64_t block = first; block < last; block += kBlock) {",
        "for (int64_t block = first; block < std::min(last, first + kBlock); block += kBlock) {",
        "the largest logit of the first 1024 classes alone",
        PLAIN,
    ),
    Mutation(
        "rows/cpu/row.h",
        "std::fill(distances + count, distances + kGroup, 0.0);",
        "",
        "padding counts in the smoothing",
        PLAIN,
    ),
    Mutation(
        "rows/cpu/row.h",
        "row.target = call_.weight(target_);",
        "row.target = 1;",
        "the weight of the target is left out",
        WEIGHTED,
    ),
    Mutation(
        "rows/cpu/row.h",
        "row.on_top = target_ == peak.index;",
        "row.on_top = false;",
        "the target is never the largest",
        PLAIN,
    ),
    Mutation(
        "rows/cpu/row.h",
        "const double incoming = call_.incoming.of(row_, 0) * call_.gradient_scale;",
        "const double incoming = call_.gradient_scale;",
        "the gradient without the incoming one",
        PLAIN,
    ),
    Mutation(
        "rows/cpu/row.h",
        "return ignored_ || call_.arguments.length == 0 ? 0 : result.loss;",
        "return result.loss;",
        "the loss of ignored rows",
        PLAIN,
    ),
    Mutation(
        "rows/cpu/row.h",
        "if (ignored_) return void(std::fill_n(gradient, kGroup, Real(0)));",
        "",
        "the gradient of ignored rows is that of the row before",
        PLAIN,
    ),
    Mutation(
        "rows/cpu/row.h",
        "if (within(target_)) gradient[target_ - first] -= hard;",
        "",
        "no -1 for the target in the gradient",
        PLAIN,
    ),
    Mutation(
        "rows/cpu/row.h",
        "if (within(peak_.index)) gradient[peak_.index - first] = largest_;",
        "",
        "the gradient of a confident row loses digits",
        PLAIN,
        unseen=DIGITS,
    ),
    Mutation(
        "rows/cpu/row.h",
        "else if (count < kGroup) {\n      for (int64_t k = 0; k < count; ++k)",
        "else if (count < kGroup) {\n      for (int64_t k = 0; k < count - 1; ++k)",
        "the last gradient of a tail is not written",
        PLAIN,
    ),
    Mutation(
        "rows/cpu/row.h",
        "to[k * stride] = from_real<Stored>(gradient[k]);",
        "to[k] = from_real<Stored>(gradient[k]);",
        "the gradient's stride",
        PLAIN,
    ),
    Mutation(
        "rows/cpu/row.h",
        "stream<kGroup * sizeof(Stored)>(narrowed, to);",
        "stream<kGroup * sizeof(Stored) / 2>(narrowed, to);",
        "half of a gradient that goes past the caches",
        PLAIN,
    ),
    Mutation(
        "rows/cpu/group_sum.h",
        "std::memcpy(&second, numbers + kHalf, sizeof second);",
        "std::memcpy(&second, numbers, sizeof second);",
        "a half of a group twice",
        PLAIN,
    ),
)
CALL = (
    Mutation(
        "rows/cpu/call.h",
        "given.parameters[kLabelSmoothing] / static_cast<double>(given.length)",
        "given.parameters[kLabelSmoothing] / static_cast<double>(given.length - 1)",
        "label smoothing is shared by C - 1 classes",
        PLAIN,
    ),
    Mutation(
        "rows/cpu/call.h",
        "gradient_scale = 1 / divisor / transform.temperature;",
        "gradient_scale = 1 / divisor;",
        "the temperature in the gradient",
        PLAIN,
    ),
    Mutation(
        "rows/cpu/call.h",
        "formula.total_weight += weight(c);",
        "formula.total_weight += 1;",
        "the smoothing's weights are taken for 1",
        WEIGHTED,
    ),
    Mutation(
        "rows/cpu/library.cpp",
        "sum.total() / call.divisor",
        "sum.total() / static_cast<double>(arguments.rows())",
        "the mean is divided by the rows, ignored ones and weights included",
        WEIGHTED,
    ),
    Mutation(
        "rows/cpu/labels.h",
        "total += counts[lane];",
        "total += lane < span.count;",
        "the mean counts ignored rows",
        PLAIN,
    ),
    Mutation(
        "rows/cpu/labels.h",
        "beyond += static_cast<uint64_t>(labels[lane]) >= classes",
        "beyond += static_cast<uint64_t>(labels[lane]) > classes",
        "a target of C is taken for a class",
        PLAIN,
    ),
    Mutation(
        "rows/kernels.h",
        "static_cast<const uint8_t*>(arguments.labels)[element]",
        "static_cast<const int8_t*>(arguments.labels)[element]",
        "targets of uint8 are read as signed",
        PLAIN,
    ),
    Mutation(
        "rows/cpu/incoming.h",
        "row * arguments.grad_output_stride",
        "row",
        "the stride of the incoming gradient",
        PLAIN,
    ),
    Mutation(
        "rows/cpu/incoming.h",
        "read(arguments_, row, output)",
        "read(arguments_, 0, output)",
        "the incoming gradient of the first row for all",
        PLAIN,
    ),
    Mutation(
        "rows/cpu/strided.h",
        "buffer[i] = to_value<Real>(data[(first + i) * stride]);",
        "buffer[i] = to_value<Real>(data[first + i * stride]);",
        "where a group of strided classes begins",
        PLAIN,
    ),
    Mutation(
        "rows/cpu/transform.h",
        "const double slope = 4 * q / ((1 + q) * (1 + q));",
        "const double slope = 4 * q / (1 + q);",
        "the slope of the softcap",
        PLAIN,
    ),
    Mutation(
        "rows/kernels.h",
        "row / inner_rows * outer + row % inner_rows * inner",
        "row * outer + row % inner_rows * inner",
        "the rows behind the classes",
        PLAIN,
    ),
)
FORMULA = (
    Mutation(
        "rows/cpu/formula.h",
        "2 * formula.z_loss * lse;",
        "formula.z_loss * lse;",
        "the factor of the z-loss's gradient",
        PLAIN,
    ),
    Mutation(
        "rows/cpu/formula.h",
        "formula.share * (row.distance + formula.total_weight * logarithm)",
        "formula.share * (row.distance + logarithm)",
        "the smoothing's part of the logarithm",
        PLAIN,
    ),
    Mutation(
        "rows/cpu/formula.h",
        "row.rest > 1 ? result.factor - of_largest :",
        "row.rest > 0 ? result.factor - of_largest :",
        "terms of a confident row cancel",
        PLAIN,
        unseen=DIGITS,
    ),
    Mutation(
        "rows/cpu/formula.h",
        "all = row.others + row.largest;",
        "all = 1;",
        "probabilities are taken to add up to 1",
        PROBABILITIES,
    ),
    Mutation(
        "rows/cpu/exponential.h",
        "(count * F::kLogTwoLow - low)",
        "count * F::kLogTwoLow",
        "the rounding error of x - max is not corrected",
        PLAIN,
        unseen=DIGITS,
    ),
)
PANELS = (
    Mutation(
        "rows/cpu/walk_panels.h",
        "added[lane] = places[lane] == place ? Real(0) : exponential;",
        "added[lane] = exponential;",
        "the largest of a panel's row counts twice",
        PLAIN,
    ),
    Mutation(
        "rows/cpu/walk_panels.h",
        "for (int64_t c = 0; c < classes_; ++c) logits_[c * kLanes + lane] = 0;",
        ";",
        "the gradient of ignored rows in a panel",
        PLAIN,
    ),
    Mutation(
        "rows/cpu/walk_panels.h",
        "gradient = targets[lane] == place ? gradient - hard[lane] : gradient;",
        "gradient = targets[lane] == place ? gradient - hard[0] : gradient;",
        "the weight of a panel's first row for all its targets",
        WEIGHTED,
    ),
    Mutation(
        "rows/cpu/walk_panels.h",
        "weighs = (static_cast<double>(p[lane]) * hard + share) * weight;",
        "weighs = static_cast<double>(p[lane]) * weight;",
        "probabilities of a panel without smoothing",
        PROBABILITIES,
    ),
    Mutation(
        "rows/cpu/lanes.h",
        "even(rows.straight())",
        "even(true)",
        "rows of a panel at unequal distances",
        PLAIN,
    ),
    Mutation(
        "rows/cpu/walk_rows.h",
        "for (int64_t i = r * pieces; i < (r + 1) * pieces; ++i) whole.add(sums[i]);",
        "for (int64_t i = r * pieces; i < (r + 1) * pieces - 1; ++i) whole.add(sums[i]);",
        "the last piece of a long row",
        PLAIN,
    ),
    Mutation(
        "rows/cpu/walk_rows.h",
        "for (int64_t c = 0; c < classes; c += kPiece)\n"
        "        whole.add(row.add_up(c, std::min(classes, c + kPiece), peak));",
        "for (int64_t c = 0; c < std::min(classes, kPiece); c += kPiece)\n"
        "        whole.add(row.add_up(c, std::min(classes, c + kPiece), peak));",
        "all pieces of a row but the first",
        PLAIN,
    ),
)

ROWS = (*ROW, *CALL, *FORMULA, *PANELS)
