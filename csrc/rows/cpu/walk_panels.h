// Cross entropy: panels of rows, side by side in vectors.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "reduce/cpu/lanes.h"
#include "rows/cpu/call.h"
#include "rows/cpu/exponential.h"
#include "rows/cpu/panel.h"
#include "rows/cpu/rooms.h"

namespace losscli::cpu {

// Rows of so many classes are walked in panels wherever they lie. One core, 16384 rows of float32,
// forward: of 100 classes 2.4 ms (5.6 row by row), of 200 4.3 ms (6.9).
constexpr int64_t kFewClasses = 256;

// What a panel takes at most.
constexpr int64_t kPanelBytes = int64_t{1} << 23;

template <typename Stored, typename Real>
class Panel {
 public:
  // May throw std::bad_alloc.
  explicit Panel(const Call<Stored, Real>& call)
      : call_(call), classes_(call.arguments.length), logits_(classes_ * kLanes) {
    if (call.kind == Kind::probabilities) probabilities_.resize(classes_ * kLanes);
    if (call.transform.softcap != 0) slopes_.resize(classes_ * kLanes);
    if (call.gradient) narrowed_.resize(classes_ * kLanes);
  }

  // Computes `count` rows; adds their losses.
  void run(int64_t first_row, int count, Compensated& sum) {
    with_kind(call_.kind, [&](auto kind) { run_as<kind()>(first_row, count, sum); });
  }

 private:
  using Index = vector_math::BitsOf<Real>;  // as wide as Real, for vectors of both

  void load(int64_t first_row, int count);
  void find_peaks();
  template <Kind kKind>
  void add_up();
  template <Kind kKind>
  void finish(int64_t first_row, int count, Compensated& sum);
  template <Kind kKind>
  void make_gradient(int count);

  template <Kind kKind>
  void run_as(int64_t first_row, int count, Compensated& sum) {
    load(first_row, count);
    find_peaks();
    // Before the logits make way for their exponentials.
    for (int lane = 0; lane < kLanes; ++lane)
      target_logits_[lane] =
          targets_[lane] == kNoTarget ? Real(0) : logits_[targets_[lane] * kLanes + lane];
    add_up<kKind>();
    finish<kKind>(first_row, count, sum);
    if (!call_.gradient) return;
    make_gradient<kKind>(count);
    const Lanes lanes(call_.arguments.gradient_strides[0], call_.arguments.inner, first_row, count);
    store_panel(logits_.data(), call_.arguments.gradients[0], lanes, count, classes_,
                narrowed_.data());
  }

  const Call<Stored, Real>& call_;
  const int64_t classes_;
  // Classes times lanes; the logits become their exponentials, and these the gradient.
  std::vector<Real> logits_, probabilities_, slopes_;
  std::vector<Stored> narrowed_;

  int64_t targets_[kLanes];
  alignas(kLine) Real target_logits_[kLanes];
  alignas(kLine) Real peaks_[kLanes];
  alignas(kLine) Index places_[kLanes];  // the class of each largest logit; classes where none is
  alignas(kLine) double rest_[kLanes], distance_[kLanes], others_[kLanes];
  alignas(kLine) Real factor_[kLanes], share_[kLanes], hard_[kLanes], largest_[kLanes];
};

template <typename Stored, typename Real>
void Panel<Stored, Real>::load(int64_t first_row, int count) {
  const RowArguments& arguments = call_.arguments;
  load_panel<Stored>(arguments.operands[0],
                     Lanes(arguments.strides[0], arguments.inner, first_row, count), count,
                     classes_, logits_.data());
  if (arguments.operands[1])
    load_panel<Stored>(arguments.operands[1],
                       Lanes(arguments.strides[1], arguments.inner, first_row, count), count,
                       classes_, probabilities_.data());
  for (int lane = 0; lane < kLanes; ++lane)
    targets_[lane] = lane < count ? call_.target(first_row + lane) : kNoTarget;
  if constexpr (std::is_same_v<Real, double>) {
    if (!call_.transformed) return;
    if (!slopes_.empty()) {
      std::fill(slopes_.begin(), slopes_.end(), 1.0);
      call_.transform.multiply_slopes(logits_.data(), slopes_.data(), classes_ * kLanes);
    }
    call_.transform.apply(logits_.data(), classes_ * kLanes);
  }
}

template <typename Stored, typename Real>
void Panel<Stored, Real>::find_peaks() {
  alignas(kLine) Real peaks[kLanes];
  alignas(kLine) Index places[kLanes];
  std::fill_n(peaks, kLanes, -std::numeric_limits<Real>::infinity());
  std::fill_n(places, kLanes, static_cast<Index>(classes_));
  const Real* z = logits_.data();
  for (int64_t c = 0; c < classes_; ++c, z += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) {
      const bool larger = z[lane] > peaks[lane];
      peaks[lane] = larger ? z[lane] : peaks[lane];
      places[lane] = larger ? static_cast<Index>(c) : places[lane];
    }
  std::copy_n(peaks, kLanes, peaks_);
  std::copy_n(places, kLanes, places_);
}

template <typename Stored, typename Real>
template <Kind kKind>
void Panel<Stored, Real>::add_up() {
  // Of each row, in the order of the classes. The errors of adding floats in double are nothing.
  LaneSums<Real, kLanes> rest, distance, others;
  alignas(kLine) Real peaks[kLanes];
  alignas(kLine) Index places[kLanes];
  std::copy_n(peaks_, kLanes, peaks);
  std::copy_n(places_, kLanes, places);
  const double hard = call_.formula.hard, share = call_.formula.share;
  Real* z = logits_.data();
  const Real* p = probabilities_.data();
  for (int64_t c = 0; c < classes_; ++c, z += kLanes) {
    alignas(kLine) Real logits[kLanes], added[kLanes];
    std::memcpy(logits, z, sizeof logits);
    const auto place = static_cast<Index>(c);
    for (int lane = 0; lane < kLanes; ++lane) {
      const Real exponential = unit_exponential(logits[lane], peaks[lane]);
      z[lane] = exponential;
      added[lane] = places[lane] == place ? Real(0) : exponential;
    }
    add_lanes(rest, added, kLanes);
    if constexpr (kKind != Kind::number) {
      alignas(kLine) double distances[kLanes], other_parts[kLanes];
      const double weight = call_.weight(c);
      for (int lane = 0; lane < kLanes; ++lane) {
        const double gap = static_cast<double>(peaks[lane]) - static_cast<double>(logits[lane]);
        double weighs = weight;
        if constexpr (kKind == Kind::probabilities) {
          weighs = (static_cast<double>(p[lane]) * hard + share) * weight;
          other_parts[lane] = places[lane] == place ? 0.0 : weighs;
        }
        distances[lane] = weighs * gap;
      }
      add_lanes(distance, distances, kLanes);
      if constexpr (kKind == Kind::probabilities) add_lanes(others, other_parts, kLanes);
    }
    if constexpr (kKind == Kind::probabilities) p += kLanes;
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    rest_[lane] = rest.at(lane).total();
    distance_[lane] = distance.at(lane).total();
    others_[lane] = others.at(lane).total();
  }
}

template <typename Stored, typename Real>
template <Kind kKind>
void Panel<Stored, Real>::finish(int64_t first_row, int count, Compensated& sum) {
  const Formula formula = call_.formula;
  alignas(kLine) double largest[kLanes] = {}, gap[kLanes] = {}, target[kLanes] = {};
  alignas(kLine) double top[kLanes] = {}, on_top[kLanes] = {}, incoming[kLanes] = {};
  for (int lane = 0; lane < count; ++lane) {
    const auto place = static_cast<int64_t>(places_[lane]);
    const bool found = place < classes_;
    if (found && kKind != Kind::number) top[lane] = call_.weight(place);
    if (found && kKind == Kind::probabilities)
      largest[lane] = (static_cast<double>(probabilities_[place * kLanes + lane]) * formula.hard +
                       formula.share) *
                      top[lane];
    if (targets_[lane] != kNoTarget) {
      gap[lane] = static_cast<double>(peaks_[lane]) - static_cast<double>(target_logits_[lane]);
      target[lane] = call_.weight(targets_[lane]);
      on_top[lane] = targets_[lane] == place;
    }
    if (call_.gradient)
      incoming[lane] = call_.incoming.of(first_row + lane, 0) * call_.gradient_scale;
  }
  alignas(kLine) double losses[kLanes];
  const double share = kKind == Kind::probabilities ? formula.hard : 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    RowSums row;
    row.max = static_cast<double>(peaks_[lane]);
    // An infinite logit makes all that is found of its row NaN.
    row.rest = row.max - row.max == 0 ? rest_[lane] / kUnit<Real>
                                      : std::numeric_limits<double>::quiet_NaN();
    row.distance = distance_[lane];
    row.others = others_[lane];
    row.largest = largest[lane];
    row.gap = gap[lane];
    row.target = target[lane];
    row.top = top[lane];
    row.on_top = on_top[lane] != 0;
    const RowResult result = finish_row<kKind>(formula, row);
    losses[lane] = result.loss;
    factor_[lane] = static_cast<Real>(result.factor * incoming[lane] / kUnit<Real>);
    hard_[lane] = static_cast<Real>((result.hard + share) * incoming[lane]);
    share_[lane] = static_cast<Real>(formula.share * incoming[lane]);
    largest_[lane] = static_cast<Real>(result.largest * incoming[lane]);
  }
  for (int lane = 0; lane < count; ++lane) {
    const bool ignored = kKind != Kind::probabilities && targets_[lane] == kNoTarget;
    const double loss = ignored ? 0 : losses[lane];
    sum.add(loss);
    call_.put_loss(first_row + lane, loss);
  }
}

template <typename Stored, typename Real>
template <Kind kKind>
void Panel<Stored, Real>::make_gradient(int count) {
  Real* z = logits_.data();
  const Real* p = probabilities_.data();
  alignas(kLine) Real factor[kLanes], hard[kLanes], share[kLanes];
  std::copy_n(factor_, kLanes, factor);
  std::copy_n(hard_, kLanes, hard);
  std::copy_n(share_, kLanes, share);
  for (int64_t c = 0; c < classes_; ++c, z += kLanes) {
    if constexpr (kKind == Kind::number) {
      for (int lane = 0; lane < kLanes; ++lane) z[lane] *= factor[lane];
    } else {
      const Real weight = static_cast<Real>(call_.weight(c));
      for (int lane = 0; lane < kLanes; ++lane) {
        Real weighs = share[lane];
        if constexpr (kKind == Kind::probabilities) weighs += p[lane] * hard[lane];
        z[lane] = z[lane] * factor[lane] - weighs * weight;
      }
      if constexpr (kKind == Kind::probabilities) p += kLanes;
    }
  }
  for (int lane = 0; lane < count; ++lane) {
    Real* const gradient = logits_.data() + lane;
    if (kKind != Kind::probabilities && targets_[lane] == kNoTarget) {
      for (int64_t c = 0; c < classes_; ++c) gradient[c * kLanes] = 0;
      continue;
    }
    if (kKind != Kind::probabilities) gradient[targets_[lane] * kLanes] -= hard_[lane];
    const auto place = static_cast<int64_t>(places_[lane]);
    if (place < classes_) gradient[place * kLanes] = largest_[lane];
  }
  for (size_t i = 0; i < slopes_.size(); ++i)
    logits_[i] = logits_[i] == 0 ? 0 : logits_[i] * slopes_[i];
}

// Whether panels are faster, or rows cannot be walked one by one without reading every line of
// memory many times.
template <typename Stored, typename Real>
bool fit_panels(const Call<Stored, Real>& call) {
  const RowArguments& arguments = call.arguments;
  const int64_t classes = arguments.length;
  if (arguments.rows() < kLanes / 4 || classes == 0) return false;
  if (classes <= kFewClasses) return true;
  return arguments.strides[0].element != 1 &&
         classes * kLanes * static_cast<int64_t>(sizeof(Real)) <= kPanelBytes;
}

// Leaves the sum of the rows' losses.
template <typename Stored, typename Real>
Compensated walk_panels(const Call<Stored, Real>& call, const LaunchContext& context) {
  const int64_t rows = call.arguments.rows(), classes = call.arguments.length;
  const int64_t panels =
      std::max(divide_up(rows, kChunks * kLanes), divide_up(kChunkElements, classes * kLanes));
  const auto work = [](auto& panel, int64_t first, int64_t last) {
    Compensated sum;
    for (int64_t row = first; row < last; row += kLanes)
      panel.run(row, static_cast<int>(std::min<int64_t>(kLanes, last - row)), sum);
    return sum;
  };
  return sum_chunks<Panel<Stored, Real>>(context, rows, panels * kLanes, work, call);
}

}  // namespace losscli::cpu
