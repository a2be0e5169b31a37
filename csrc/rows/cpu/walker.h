// One row of a loss: its passes, a group of elements at a time, with room for what a pass finds
// that the next one needs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/vector_math.h"
#include "elementwise/cpu/stream.h"
#include "rows/cpu/exponential.h"
#include "rows/cpu/facts.h"
#include "rows/cpu/group_sum.h"
#include "rows/cpu/strided.h"
#include "rows/cpu/value.h"

namespace losscli::cpu {

// `Functor` is the template of the loss; elements are computed in Real, a row's results in double.
template <template <typename> class Functor, typename Stored, typename Real>
class Walker {
 public:
  using Loss = Functor<Real>;
  using WideLoss = Functor<double>;
  static constexpr int kRows = Loss::rows;

  explicit Walker(const RowArguments& arguments)
      : arguments_(arguments),
        loss_(arguments.parameters),
        wide_(arguments.parameters),
        inverse_(Loss::logits ? static_cast<Real>(1 / arguments.parameters[0]) : Real(1)) {
    const int64_t length = arguments.length + kGroup;
    keeps_ = Loss::logits && (arguments.wants_gradient() || Loss::later_sums > 0) &&
             kRows * length * static_cast<int64_t>(sizeof(Real)) <= kKeptBytes;
    if (keeps_) kept_.resize(kRows * length);
  }

  // Computes rows, and their gradients if they are wanted, over `divisor`; returns the sum of the
  // losses.
  Compensated run(int64_t first, int64_t last, const Facts<WideLoss, Stored>& facts,
                  const RowIncoming& incoming, double divisor, bool gradient) {
    const int64_t rows = arguments_.rows();
    Compensated sum;
    for (int64_t row = first; row < last; ++row) {
      double values[kMostOutputs] = {};
      if (facts.counts(row)) {
        double scales[kMostOutputs];
        for (int o = 0; o < kMostOutputs; ++o) scales[o] = incoming.of(row, o) / divisor;
        const auto& found = read(row, facts.of_row(row), scales);
        std::copy_n(found.values, kMostOutputs, values);
        if (gradient) write(row);
      } else if (gradient) {
        write_zeros(row);
      }
      sum.add(values[0]);
      if (arguments_.value && arguments_.reduction == RowReduction::none)
        for (int o = 0; o < arguments_.outputs; ++o)
          put<Stored>(arguments_, o * rows + row, values[o]);
    }
    return sum;
  }

 private:
  // The passes up to the values; the row counts.
  const RowFinish<double>& read(int64_t row, const RowFacts<double>& facts,
                                const double (&incoming)[kMostOutputs]) {
    wide_facts_ = facts;
    facts_.length = facts.length;
    facts_.label = facts.label;
    facts_.target = static_cast<Real>(facts.target);
    facts_.weight = static_cast<Real>(facts.weight);
    facts_.picked = static_cast<Real>(facts.picked);
    for (int k = 0; k < kRows; ++k) rows_[k] = Strided<Stored>(arguments_, k, row);
    totals_ = {};
    if constexpr (Loss::logits) {
      for (int k = 0; k < kRows; ++k) find_top(k);
      add_exponentials();
    } else if constexpr (Loss::sums > 0) {
      add_terms<Loss::sums>(
          totals_.sums, [&](const auto& e, auto& to) LOSSCLI_LAMBDA { loss_.add(facts_, e, to); });
    }
    if constexpr (Loss::later_sums > 0)
      add_terms<Loss::later_sums>(
          totals_.later, [&](const auto& e, auto& to) LOSSCLI_LAMBDA { loss_.add_later(e, to); });
    wide_finish_ = wide_.finish(wide_facts_, totals_, incoming);
    for (int i = 0; i < kMostRowFactors; ++i)
      finish_.factors[i] = static_cast<Real>(wide_finish_.factors[i]);
    return wide_finish_;
  }

  // The gradients of the row that was read.
  void write(int64_t row) {
    each_group([&](int64_t first, int64_t count, const Real* mark) {
      Group x, p, d;
      elements(first, count, x, p, d);
      alignas(kLine) Real out[kRows][kGroup];
      for (int lane = 0; lane < kGroup; ++lane) {
        Real found[kRows];
        loss_.gradient(facts_, finish_, element(x, p, d, mark, lane), found);
        for (int k = 0; k < kRows; ++k) out[k][lane] = found[k];
      }
      for (int k = 0; k < kRows; ++k) store(k, row, first, count, out[k]);
    });
  }

  void write_zeros(int64_t row) {
    alignas(kLine) const Real zeros[kGroup] = {};
    for (int64_t first = 0; first < arguments_.length; first += kGroup)
      for (int k = 0; k < kRows; ++k)
        store(k, row, first, std::min<int64_t>(kGroup, arguments_.length - first), zeros);
  }

  // A group of each operand, where it lies.
  using Group = const Real* [kRows];

  template <typename Body>
  void each_group(const Body& body) {
    alignas(kLine) Real mark[kGroup] = {};
    for (int64_t first = 0; first < arguments_.length; first += kGroup) {
      const int64_t place = facts_.label - first;
      const bool within = Loss::labelled && place >= 0 && place < kGroup;
      if (within) mark[place] = 1;
      body(first, std::min<int64_t>(kGroup, arguments_.length - first), mark);
      if (within) mark[place] = 0;
    }
  }

  // Padded with what adds nothing.
  const Real* values(int k, int64_t first, int64_t count) {
    constexpr Real kPadding = Loss::logits ? -std::numeric_limits<Real>::infinity() : Real(0);
    if (!Loss::reads) return zeros_;
    return rows_[k].take(first, count, buffers_[k], kPadding);
  }

  Real* kept(int k, int64_t first) {
    return keeps_ ? kept_.data() + k * (arguments_.length + kGroup) + first : powers_[k];
  }

  void find_top(int k) {
    alignas(kLine) Real lanes[kGroup];
    // Not -inf: of a row of which all are, the exponentials are 0, and those of NaN are not.
    std::fill_n(lanes, kGroup, std::numeric_limits<Real>::lowest());
    for (int64_t first = 0; first < arguments_.length; first += kGroup) {
      const int64_t count = std::min<int64_t>(kGroup, arguments_.length - first);
      if (rows_[k].stride == 1) ask_ahead<false>(rows_[k].data + first, count);
      const Real* const x = values(k, first, count);
      for (int lane = 0; lane < kGroup; ++lane)
        lanes[lane] = x[lane] > lanes[lane] ? x[lane] : lanes[lane];
    }
    tops_[k] = largest_of<kGroup>(lanes);
  }

  void take_exponentials(int k, const Real* x, Real* to) const {
    const Real top = tops_[k], inverse = inverse_;
    for (int lane = 0; lane < kGroup; ++lane) to[lane] = unit_exponential(x[lane], top, inverse);
  }

  void add_exponentials() {
    constexpr DistanceSum kDistance = Loss::distance;
    GroupSum sums[kRows], distance;
    double own = 0, own_distance = 0;
    each_group([&](int64_t first, int64_t count, const Real*) {
      Group x;
      alignas(kLine) Real added[kRows][kGroup];
      for (int k = 0; k < kRows; ++k) {
        x[k] = values(k, first, count);
        Real* const to = kept(k, first);
        take_exponentials(k, x[k], to);
        std::copy_n(to, kGroup, added[k]);
      }
      if constexpr (Loss::labelled) {
        const int64_t place = facts_.label - first;
        if (place >= 0 && place < kGroup) {
          own = static_cast<double>(added[0][place]);
          own_distance = static_cast<double>((tops_[0] - x[0][place]) * inverse_);
          added[0][place] = 0;
        }
      }
      if constexpr (kDistance.weight >= 0) {
        alignas(kLine) Real terms[kGroup];
        for (int lane = 0; lane < kGroup; ++lane) {
          Real gap = 0;
          for (int k = 0; k < kRows; ++k)
            if (kDistance.factors[k] != 0) {
              const Real below = (tops_[k] - x[k][lane]) * inverse_;
              gap = kDistance.factors[k] > 0 ? gap + below : gap - below;
            }
          const Real weight = added[kDistance.weight][lane];
          terms[lane] = select(weight == Real(0), Real(0), weight * gap);
        }
        distance.add<kGroup>(terms);
      }
      for (int k = 0; k < kRows; ++k) sums[k].template add<kGroup>(added[k]);
    });
    double whole[kRows];
    for (int k = 0; k < kRows; ++k) whole[k] = sums[k].total();
    if constexpr (Loss::labelled) {
      const double others = whole[0];
      whole[0] += own;
      totals_.own = own / whole[0];
      totals_.others = others / whole[0];
      totals_.surprise = own > others
                             ? vector_math::log_of_one_plus(others / own)
                             : own_distance + vector_math::logarithm(whole[0] / kUnit<Real>);
    }
    for (int k = 0; k < kRows; ++k) {
      totals_.tops[k] = static_cast<double>(tops_[k]);
      totals_.logarithm[k] = vector_math::logarithm(whole[k] / kUnit<Real>);
      inverses_[k] = static_cast<Real>(1 / whole[k]);
    }
    if constexpr (kDistance.weight >= 0) {
      double all = distance.total();
      // The class's own exponential was left out.
      if (Loss::labelled && own > 0) all += own * own_distance;
      totals_.distance = all / whole[kDistance.weight];
    }
  }

  // Adds up what `add(element, terms)` gives of each element.
  template <int kSums, typename Add>
  void add_terms(double (&totals)[kMostRowSums], const Add& add) {
    GroupSum sums[kSums];
    each_group([&](int64_t first, int64_t count, const Real* mark) {
      Group x, p, d;
      for (int k = 0; k < kRows; ++k)  // logits have been read before
        if (!Loss::logits && rows_[k].stride == 1) ask_ahead<false>(rows_[k].data + first, count);
      elements(first, count, x, p, d);
      alignas(kLine) Real terms[kSums][kGroup];
      for (int lane = 0; lane < kGroup; ++lane) {
        Real found[kSums] = {};
        add(element(x, p, d, mark, lane), found);
        for (int s = 0; s < kSums; ++s) terms[s][lane] = found[s];
      }
      for (int s = 0; s < kSums; ++s) {
        if (!Loss::logits) std::fill(terms[s] + count, terms[s] + kGroup, Real(0));
        sums[s].template add<kGroup>(terms[s]);
      }
    });
    for (int s = 0; s < kSums; ++s) totals[s] = sums[s].total();
  }

  // A group as the functor sees it: values, probabilities and distances.
  void elements(int64_t first, int64_t count, Group& x, Group& p, Group& d) {
    for (int k = 0; k < kRows; ++k) {
      x[k] = p[k] = d[k] = values(k, first, count);
      if constexpr (Loss::logits) {
        const Real* e = kept(k, first);
        if (!keeps_) take_exponentials(k, x[k], powers_[k]);
        const Real inverse = inverses_[k], top = tops_[k], over = inverse_;
        for (int lane = 0; lane < kGroup; ++lane) {
          probabilities_[k][lane] = e[lane] * inverse;
          distances_[k][lane] = (top - x[k][lane]) * over;
        }
        p[k] = probabilities_[k];
        d[k] = distances_[k];
      }
    }
  }

  LOSSCLI_HOST_DEVICE static RowElement<Real, kRows> element(const Group& x, const Group& p,
                                                             const Group& d, const Real* mark,
                                                             int lane) {
    RowElement<Real, kRows> found;
    for (int k = 0; k < kRows; ++k) {
      found.x[k] = x[k][lane];
      found.p[k] = p[k][lane];
      found.d[k] = d[k][lane];
    }
    found.label_mark = mark[lane];
    return found;
  }

  void store(int k, int64_t row, int64_t first, int64_t count, const Real* from) const {
    if (!arguments_.gradients[k]) return;
    const RowStrides& strides = arguments_.gradient_strides[k];
    Stored* const to = static_cast<Stored*>(arguments_.gradients[k]) +
                       strides.start(row, arguments_.inner) + first * strides.element;
    if (strides.element == 1) return narrow_run(from, to, count);
    for (int64_t i = 0; i < count; ++i) to[i * strides.element] = from_real<Stored>(from[i]);
  }

  const RowArguments& arguments_;
  const Loss loss_;
  const WideLoss wide_;
  const Real inverse_;  // 1 / temperature
  bool keeps_ = false;
  std::vector<Real> kept_;

  RowFacts<double> wide_facts_;
  RowFacts<Real> facts_;
  RowTotals<double> totals_;
  RowFinish<double> wide_finish_;
  RowFinish<Real> finish_;
  Strided<Stored> rows_[kRows];
  Real tops_[kRows] = {};
  Real inverses_[kRows] = {};  // 1 / the sum of the exponentials, all in units of kUnit

  alignas(kLine) Real buffers_[kRows][kGroup];
  alignas(kLine) Real powers_[kRows][kGroup];
  alignas(kLine) Real probabilities_[kRows][kGroup];
  alignas(kLine) Real distances_[kRows][kGroup];
  alignas(kLine) const Real zeros_[kGroup] = {};
};

}  // namespace losscli::cpu
