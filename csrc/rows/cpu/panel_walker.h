// Rows of a loss side by side in vectors: the passes of walker.h, a class of some rows at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/vector_math.h"
#include "reduce/cpu/lanes.h"
#include "rows/cpu/exponential.h"
#include "rows/cpu/facts.h"
#include "rows/cpu/panel.h"
#include "rows/cpu/value.h"

namespace losscli::cpu {

// `Functor` is the template of the loss; elements are computed in Real, a row's results in double.
template <template <typename> class Functor, typename Stored, typename Real>
class PanelWalker {
 public:
  using Loss = Functor<Real>;
  using WideLoss = Functor<double>;
  static constexpr int kRows = Loss::rows;

  static bool fits(const RowArguments& arguments) {
    // Where rows are not read, what there is to do is the same for all classes.
    const bool many = !Loss::reads && arguments.rows() >= kChunks * kLanes;
    return many || fit_panels(arguments, sizeof(Real) * (kRows * (Loss::logits ? 2 : 1) + 1));
  }

  // May throw std::bad_alloc.
  explicit PanelWalker(const RowArguments& arguments)
      : arguments_(arguments),
        loss_(arguments.parameters),
        wide_(arguments.parameters),
        inverse_(Loss::logits ? static_cast<Real>(1 / arguments.parameters[0]) : Real(1)),
        classes_(arguments.length) {
    if (!Loss::reads) return;
    room_.resize(classes_ * kLanes);
    for (int k = 0; k < kRows; ++k) {
      elements_[k].resize(classes_ * kLanes);
      if (Loss::logits) powers_[k].resize(classes_ * kLanes);
    }
  }

  // Computes rows, and their gradients if they are wanted, over `divisor`; returns the sum of the
  // losses.
  Compensated run(int64_t first_row, int64_t last_row, const Facts<WideLoss, Stored>& facts,
                  const RowIncoming& incoming, double divisor, bool gradient) {
    LaneSums<Real, kLanes> sum;
    for (int64_t row = first_row; row < last_row; row += kLanes) {
      const RowSpan rows(arguments_.inner, row, last_row - row);
      facts.of_rows(rows, facts_);
      load(rows);
      if constexpr (Loss::logits) {
        for (int k = 0; k < kRows; ++k) find_tops(k);
        add_exponentials();
      } else if constexpr (Loss::sums > 0) {
        add_terms<Loss::sums>(sums_, [&](const auto& e, auto& to, int lane) LOSSCLI_LAMBDA {
          loss_.add(facts_of<Real>(lane), e, to);
        });
      }
      if constexpr (Loss::later_sums > 0)
        add_terms<Loss::later_sums>(
            later_, [&](const auto& e, auto& to, int) LOSSCLI_LAMBDA { loss_.add_later(e, to); });
      for (int o = 0; o < kMostOutputs; ++o) incoming.of_rows(rows, o, 1 / divisor, incoming_[o]);
      finish();
      add_lanes(sum, values_[0], kLanes);
      for (int o = 0; o < arguments_.outputs; ++o)
        put_lanes<Stored>(arguments_, rows, o * arguments_.rows(), values_[o]);
      if (gradient) write(rows);
    }
    return sum.total();
  }

 private:
  using Index = vector_math::BitsOf<Real>;  // as wide as Real, for vectors of both

  void load(const RowSpan& rows) {
    if constexpr (Loss::reads) {
      for (int k = 0; k < kRows; ++k)
        load_panel<Stored>(arguments_.operands[k], Lanes(arguments_.strides[k], rows), rows.count,
                           classes_, elements_[k].data(), room_.data());
    }
    for (int lane = 0; lane < kLanes; ++lane)
      counts_[lane] = static_cast<Index>(facts_.counts[lane]);
    if constexpr (Loss::labelled) {
      const Lanes lanes(arguments_.strides[0], rows);
      const auto* const stored = static_cast<const Stored*>(arguments_.operands[0]);
      for (int lane = 0; lane < kLanes; ++lane) {
        const int64_t label = facts_.label[lane];
        labels_[lane] = static_cast<Index>(label);
        facts_.picked[lane] =
            label == classes_ ? 0.0
                              : to_value<double>(stored[lanes.at(lane) + label * lanes.element]);
      }
    }
  }

  // Of each row; not -inf: of a row of which all are, the exponentials are 0, and those of NaN are
  // not.
  void find_tops(int k) {
    alignas(kLine) Real tops[kLanes];
    std::fill_n(tops, kLanes, std::numeric_limits<Real>::lowest());
    const Real* x = elements_[k].data();
    for (int64_t c = 0; c < classes_; ++c, x += kLanes)
      for (int lane = 0; lane < kLanes; ++lane)
        tops[lane] = x[lane] > tops[lane] ? x[lane] : tops[lane];
    copy_lanes(tops, tops_[k]);
  }

  void add_exponentials() {
    constexpr DistanceSum kDistance = Loss::distance;
    LaneSums<Real, kLanes> sums[kRows], distance;
    alignas(kLine) Real own[kLanes] = {}, own_below[kLanes] = {};
    for (int64_t c = 0; c < classes_; ++c) {
      const auto place = static_cast<Index>(c);
      alignas(kLine) Real added[kRows][kLanes], below[kRows][kLanes];
      for (int k = 0; k < kRows; ++k) {
        const Real* const x = elements_[k].data() + c * kLanes;
        for (int lane = 0; lane < kLanes; ++lane) {
          added[k][lane] = unit_exponential(x[lane], tops_[k][lane], inverse_);
          below[k][lane] = (tops_[k][lane] - x[lane]) * inverse_;
        }
        copy_lanes(added[k], powers_[k].data() + c * kLanes);
      }
      if constexpr (Loss::labelled) {
        for (int lane = 0; lane < kLanes; ++lane) {
          const bool is_own = labels_[lane] == place;
          own[lane] = is_own ? added[0][lane] : own[lane];
          own_below[lane] = is_own ? below[0][lane] : own_below[lane];
          added[0][lane] = is_own ? Real(0) : added[0][lane];
        }
      }
      if constexpr (kDistance.weight >= 0) {
        alignas(kLine) Real terms[kLanes];
        for (int lane = 0; lane < kLanes; ++lane) {
          Real gap = 0;
          for (int k = 0; k < kRows; ++k)
            if (kDistance.factors[k] != 0)
              gap = kDistance.factors[k] > 0 ? gap + below[k][lane] : gap - below[k][lane];
          const Real weight = added[kDistance.weight][lane];
          terms[lane] = select(weight == Real(0), Real(0), weight * gap);
        }
        add_lanes(distance, terms, kLanes);
      }
      for (int k = 0; k < kRows; ++k) add_lanes(sums[k], added[k], kLanes);
    }
    for (int lane = 0; lane < kLanes; ++lane) {
      own_[lane] = static_cast<double>(own[lane]);
      own_below_[lane] = static_cast<double>(own_below[lane]);
      for (int k = 0; k < kRows; ++k) {
        double whole = sums[k].at(lane).total();
        if (Loss::labelled && k == 0) {
          others_[lane] = whole;
          whole += own_[lane];
        }
        wholes_[k][lane] = whole;
        inverses_[k][lane] = static_cast<Real>(1 / whole);
      }
      if constexpr (kDistance.weight >= 0)
        distance_[lane] = distance.at(lane).total() +
                          // The class's own exponential was left out.
                          (own_[lane] > 0 ? own_[lane] * own_below_[lane] : 0);
    }
  }

  // Adds up what `add(element, terms, lane)` gives of each element.
  template <int kSums, typename Add>
  void add_terms(double (&totals)[kMostRowSums][kLanes], const Add& add) {
    LaneSums<Real, kLanes> sums[kSums];
    for (int64_t c = 0; c < classes_; ++c) {
      alignas(kLine) Real terms[kSums][kLanes];
      for (int lane = 0; lane < kLanes; ++lane) {
        Real found[kSums] = {};
        add(element(c, lane), found, lane);
        for (int s = 0; s < kSums; ++s) terms[s][lane] = found[s];
      }
      for (int s = 0; s < kSums; ++s) add_lanes(sums[s], terms[s], kLanes);
    }
    for (int s = 0; s < kSums; ++s)
      for (int lane = 0; lane < kLanes; ++lane) totals[s][lane] = sums[s].at(lane).total();
  }

  template <typename Number>
  LOSSCLI_HOST_DEVICE RowFacts<Number> facts_of(int lane) const {
    RowFacts<Number> facts;
    facts.length = classes_;
    facts.label = facts_.label[lane];
    facts.target = static_cast<Number>(facts_.target[lane]);
    facts.weight = static_cast<Number>(facts_.weight[lane]);
    facts.picked = static_cast<Number>(facts_.picked[lane]);
    return facts;
  }

  LOSSCLI_HOST_DEVICE RowTotals<double> totals_of(int lane) const {
    RowTotals<double> totals;
    if constexpr (Loss::logits) {
      for (int k = 0; k < kRows; ++k) {
        totals.tops[k] = static_cast<double>(tops_[k][lane]);
        totals.logarithm[k] = vector_math::logarithm(wholes_[k][lane] / kUnit<Real>);
      }
      if constexpr (Loss::labelled) {
        const double own = own_[lane], others = others_[lane];
        totals.own = own / wholes_[0][lane];
        totals.others = others / wholes_[0][lane];
        totals.surprise = own > others ? vector_math::log_of_one_plus(others / own)
                                       : own_below_[lane] + totals.logarithm[0];
      }
      if constexpr (Loss::distance.weight >= 0)
        totals.distance = distance_[lane] / wholes_[Loss::distance.weight][lane];
    }
    for (int s = 0; s < Loss::sums; ++s) totals.sums[s] = sums_[s][lane];
    for (int s = 0; s < Loss::later_sums; ++s) totals.later[s] = later_[s][lane];
    return totals;
  }

  void finish() {
    for (int lane = 0; lane < kLanes; ++lane) {
      double incoming[kMostOutputs];
      for (int o = 0; o < kMostOutputs; ++o) incoming[o] = incoming_[o][lane];
      const RowFinish<double> found =
          wide_.finish(facts_of<double>(lane), totals_of(lane), incoming);
      for (int o = 0; o < kMostOutputs; ++o)
        values_[o][lane] = facts_.counts[lane] != 0 ? found.values[o] : 0;
      for (int i = 0; i < kMostRowFactors; ++i)
        factors_[i][lane] = static_cast<Real>(found.factors[i]);
    }
  }

  LOSSCLI_HOST_DEVICE RowElement<Real, kRows> element(int64_t c, int lane) const {
    RowElement<Real, kRows> found;
    for (int k = 0; k < kRows; ++k) {
      const Real x = elements_[k][c * kLanes + lane];
      found.x[k] = found.p[k] = found.d[k] = x;
      if constexpr (Loss::logits) {
        found.p[k] = powers_[k][c * kLanes + lane] * inverses_[k][lane];
        found.d[k] = (tops_[k][lane] - x) * inverse_;
      }
    }
    found.label_mark = Loss::labelled && labels_[lane] == static_cast<Index>(c) ? Real(1) : Real(0);
    return found;
  }

  LOSSCLI_HOST_DEVICE void gradient_of(const RowElement<Real, kRows>& e, int lane,
                                       Real (&found)[kRows]) const {
    RowFinish<Real> finish;
    for (int i = 0; i < kMostRowFactors; ++i) finish.factors[i] = factors_[i][lane];
    loss_.gradient(facts_of<Real>(lane), finish, e, found);
  }

  // The gradient of the row's class, where it alone is not 0.
  void write_picked(const RowSpan& rows) const {
    const Lanes lanes(arguments_.gradient_strides[0], rows);
    auto* const stored = static_cast<Stored*>(arguments_.gradients[0]);
    clear_rows(stored, lanes, rows.count, classes_);
    for (int lane = 0; lane < rows.count; ++lane) {
      if (facts_.counts[lane] == 0) continue;
      RowElement<Real, kRows> own = {};
      own.label_mark = 1;
      Real found[kRows];
      gradient_of(own, lane, found);
      stored[lanes.at(lane) + facts_.label[lane] * lanes.element] = from_real<Stored>(found[0]);
    }
  }

  void write(const RowSpan& rows) {
    if constexpr (!Loss::reads) return write_picked(rows);
    for (int64_t c = 0; c < classes_; ++c) {
      alignas(kLine) Real out[kRows][kLanes];
      for (int lane = 0; lane < kLanes; ++lane) {
        Real found[kRows];
        gradient_of(element(c, lane), lane, found);
        for (int k = 0; k < kRows; ++k) out[k][lane] = counts_[lane] != 0 ? found[k] : Real(0);
      }
      // Nothing else asks for the elements of this class.
      for (int k = 0; k < kRows; ++k) copy_lanes(out[k], elements_[k].data() + c * kLanes);
    }
    for (int k = 0; k < kRows; ++k)
      if (arguments_.gradients[k])
        store_panel<Stored>(elements_[k].data(), arguments_.gradients[k],
                            Lanes(arguments_.gradient_strides[k], rows), rows.count, classes_,
                            room_.data());
  }

  const RowArguments& arguments_;
  const Loss loss_;
  const WideLoss wide_;
  const Real inverse_;  // 1 / temperature
  const int64_t classes_;
  // Classes times lanes, which become gradients; of logits also the exponentials, as all that is
  // found of these in units of kUnit.
  std::vector<Real> elements_[kRows], powers_[kRows], room_;

  LaneFacts facts_ = {};
  alignas(kLine) Index labels_[kLanes], counts_[kLanes];
  alignas(kLine) Real tops_[kRows][kLanes];
  alignas(kLine) Real inverses_[kRows][kLanes];            // 1 / the sum of the exponentials
  alignas(kLine) double wholes_[kRows][kLanes];            // that sum
  alignas(kLine) double own_[kLanes], own_below_[kLanes];  // of the row's class
  alignas(kLine) double others_[kLanes], distance_[kLanes];
  alignas(kLine) double sums_[kMostRowSums][kLanes], later_[kMostRowSums][kLanes];
  alignas(kLine) double incoming_[kMostOutputs][kLanes], values_[kMostOutputs][kLanes];
  alignas(kLine) Real factors_[kMostRowFactors][kLanes];
};

}  // namespace losscli::cpu
