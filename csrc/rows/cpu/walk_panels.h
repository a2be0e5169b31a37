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

template <typename Stored, typename Real>
class Panel {
 public:
  // May throw std::bad_alloc.
  explicit Panel(const Call<Stored, Real>& call)
      : call_(call),
        classes_(call.arguments.length),
        logits_(classes_ * kLanes),
        room_(classes_ * kLanes) {
    if (call.kind == Kind::probabilities) probabilities_.resize(classes_ * kLanes);
    if (call.transform.softcap != 0) slopes_.resize(classes_ * kLanes);
  }

  // Computes rows; returns the sum of their losses.
  Compensated run(int64_t first_row, int64_t last_row) {
    sum_ = {};
    with_kind(call_.kind, [&](auto kind) {
      for (int64_t row = first_row; row < last_row; row += kLanes)
        run_as<kind()>(RowSpan(call_.arguments.inner, row, last_row - row));
    });
    return sum_.total();
  }

 private:
  using Index = vector_math::BitsOf<Real>;  // as wide as Real, for vectors of both

  void load(const RowSpan& rows);
  void find_peaks();
  template <Kind kKind>
  void add_up();
  template <Kind kKind>
  void weigh();
  template <Kind kKind>
  void add_losses(const RowSpan& rows);
  template <Kind kKind>
  void make_gradient(const RowSpan& rows);

  template <Kind kKind>
  void run_as(const RowSpan& rows) {
    load(rows);
    find_peaks();
    add_up<kKind>();
    weigh<kKind>();
    if (call_.arguments.value) add_losses<kKind>(rows);
    if (!call_.gradient) return;
    make_gradient<kKind>(rows);
    store_panel<Stored>(logits_.data(), call_.arguments.gradients[0],
                        Lanes(call_.arguments.gradient_strides[0], rows), rows.count, classes_,
                        room_.data());
  }

  LOSSCLI_HOST_DEVICE RowSums sums(int lane) const {
    RowSums row;
    row.max = static_cast<double>(peaks_[lane]);
    // An infinite logit makes all that is found of its row NaN.
    row.rest = row.max - row.max == 0 ? rest_[lane] : std::numeric_limits<double>::quiet_NaN();
    row.distance = distance_[lane];
    row.others = others_[lane];
    row.largest = largest_[lane];
    row.gap = row.max - static_cast<double>(own_[lane]);
    row.target = target_[lane];
    row.top = top_[lane];
    row.on_top = targets_[lane] == places_[lane];
    return row;
  }

  const Call<Stored, Real>& call_;
  const int64_t classes_;
  // Classes times lanes; the logits become their exponentials, and these the gradient.
  std::vector<Real> logits_, probabilities_, slopes_, room_;

  LaneSums<Real, kLanes> sum_;
  // Of each row the number of its class, and that of its largest logit; where it has none, the
  // number of classes.
  alignas(kLine) Index targets_[kLanes];
  alignas(kLine) Index places_[kLanes];
  alignas(kLine) Real own_[kLanes], peaks_[kLanes];     // the logits of these two,
  alignas(kLine) double target_[kLanes], top_[kLanes];  // their weights,
  alignas(kLine) double largest_[kLanes];               // and the part of the second
  alignas(kLine) double rest_[kLanes], distance_[kLanes], others_[kLanes];
};

template <typename Stored, typename Real>
void Panel<Stored, Real>::load(const RowSpan& rows) {
  const RowArguments& arguments = call_.arguments;
  load_panel<Stored>(arguments.operands[0], Lanes(arguments.strides[0], rows), rows.count, classes_,
                     logits_.data(), room_.data());
  if (arguments.operands[1])
    load_panel<Stored>(arguments.operands[1], Lanes(arguments.strides[1], rows), rows.count,
                       classes_, probabilities_.data(), room_.data());
  call_.targets(rows, targets_);
  if constexpr (std::is_same_v<Real, double>) {
    if (!call_.transformed) return;
    if (!slopes_.empty()) {
      std::fill(slopes_.begin(), slopes_.end(), 1.0);
      call_.transform.multiply_slopes(logits_.data(), slopes_.data(), classes_ * kLanes);
    }
    call_.transform.apply(logits_.data(), classes_ * kLanes);
  }
}

// Also picks the logits of the rows' classes.
template <typename Stored, typename Real>
void Panel<Stored, Real>::find_peaks() {
  alignas(kLine) Real peaks[kLanes], own[kLanes] = {};
  alignas(kLine) Index places[kLanes], targets[kLanes];
  copy_lanes(targets_, targets);
  std::fill_n(peaks, kLanes, -std::numeric_limits<Real>::infinity());
  std::fill_n(places, kLanes, static_cast<Index>(classes_));
  const Real* z = logits_.data();
  for (int64_t c = 0; c < classes_; ++c, z += kLanes) {
    const auto place = static_cast<Index>(c);
    for (int lane = 0; lane < kLanes; ++lane) {
      const Real logit = z[lane], peak = peaks[lane];
      // GCC would make a branch of a choice between places.
      const Index larger = -static_cast<Index>(logit > peak);
      places[lane] ^= (places[lane] ^ place) & larger;
      peaks[lane] = logit > peak ? logit : peak;
      own[lane] = targets[lane] == place ? logit : own[lane];
    }
  }
  copy_lanes(peaks, peaks_);
  copy_lanes(places, places_);
  copy_lanes(own, own_);
}

template <typename Stored, typename Real>
template <Kind kKind>
void Panel<Stored, Real>::add_up() {
  // Of each row, in the order of the classes. The errors of adding floats in double are nothing.
  LaneSums<Real, kLanes> rest, distance, others;
  alignas(kLine) Real peaks[kLanes];
  alignas(kLine) Index places[kLanes];
  copy_lanes(peaks_, peaks);
  copy_lanes(places_, places);
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
    rest_[lane] = rest.at(lane).total() / kUnit<Real>;
    if (kKind != Kind::number) distance_[lane] = distance.at(lane).total();
    if (kKind == Kind::probabilities) others_[lane] = others.at(lane).total();
  }
}

// What the classes of the rows and of their largest logits weigh.
template <typename Stored, typename Real>
template <Kind kKind>
void Panel<Stored, Real>::weigh() {
  const auto none = static_cast<Index>(classes_);
  for (int lane = 0; lane < kLanes; ++lane) {
    target_[lane] = targets_[lane] == none ? 0 : 1;
    top_[lane] = places_[lane] == none ? 0 : 1;
    largest_[lane] = 0;
  }
  for (int lane = 0; call_.arguments.weight && lane < kLanes; ++lane) {
    if (target_[lane] != 0) target_[lane] = call_.weight(targets_[lane]);
    if (top_[lane] != 0) top_[lane] = call_.weight(places_[lane]);
  }
  for (int lane = 0; kKind == Kind::probabilities && lane < kLanes; ++lane) {
    if (places_[lane] == none) continue;
    const auto p = static_cast<double>(probabilities_[places_[lane] * kLanes + lane]);
    largest_[lane] = (p * call_.formula.hard + call_.formula.share) * top_[lane];
  }
}

template <typename Stored, typename Real>
template <Kind kKind>
void Panel<Stored, Real>::add_losses(const RowSpan& rows) {
  const Formula formula = call_.formula;
  const auto none = static_cast<Index>(classes_);
  const int count = rows.count;
  alignas(kLine) double losses[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    const double loss = finish_row<kKind, Real>(formula, sums(lane)).loss;
    const bool counts = kKind == Kind::probabilities ? lane < count : targets_[lane] != none;
    losses[lane] = counts ? loss : 0;
  }
  add_lanes(sum_, losses, kLanes);
  put_lanes<Stored>(call_.arguments, rows, 0, losses);
}

template <typename Stored, typename Real>
template <Kind kKind>
void Panel<Stored, Real>::make_gradient(const RowSpan& rows) {
  const Formula formula = call_.formula;
  const double of_target = kKind == Kind::probabilities ? formula.hard : 0;
  alignas(kLine) double incoming[kLanes];
  call_.incoming.of_rows(rows, 0, call_.gradient_scale, incoming);
  alignas(kLine) Real factor[kLanes], hard[kLanes], share[kLanes], largest[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    const RowResult result = finish_row<kKind, Real>(formula, sums(lane));
    factor[lane] = static_cast<Real>(result.factor * incoming[lane] / kUnit<Real>);
    hard[lane] = static_cast<Real>((result.hard + of_target) * incoming[lane]);
    share[lane] = static_cast<Real>(formula.share * incoming[lane]);
    largest[lane] = static_cast<Real>(result.largest * incoming[lane]);
  }
  alignas(kLine) Index places[kLanes], targets[kLanes];
  copy_lanes(places_, places);
  copy_lanes(targets_, targets);
  Real* z = logits_.data();
  const Real* p = probabilities_.data();
  for (int64_t c = 0; c < classes_; ++c, z += kLanes) {
    const auto place = static_cast<Index>(c);
    const Real weight = kKind == Kind::number ? Real(1) : static_cast<Real>(call_.weight(c));
    for (int lane = 0; lane < kLanes; ++lane) {
      Real gradient = z[lane] * factor[lane];
      if constexpr (kKind == Kind::smoothed) gradient -= share[lane] * weight;
      if constexpr (kKind == Kind::probabilities)
        gradient -= (share[lane] + p[lane] * hard[lane]) * weight;
      else
        gradient = targets[lane] == place ? gradient - hard[lane] : gradient;
      z[lane] = places[lane] == place ? largest[lane] : gradient;
    }
    if constexpr (kKind == Kind::probabilities) p += kLanes;
  }
  for (size_t i = 0; i < slopes_.size(); ++i)
    logits_[i] = logits_[i] == 0 ? 0 : logits_[i] * slopes_[i];
  for (int lane = 0; kKind != Kind::probabilities && lane < rows.count; ++lane)
    if (targets[lane] == static_cast<Index>(classes_))
      for (int64_t c = 0; c < classes_; ++c) logits_[c * kLanes + lane] = 0;
}

// Leaves the sum of the rows' losses.
template <typename Stored, typename Real>
Compensated walk_panels(const Call<Stored, Real>& call, const LaunchContext& context) {
  const auto work = [](auto& panel, int64_t first, int64_t last) { return panel.run(first, last); };
  return sum_chunks<Panel<Stored, Real>>(context, call.arguments.rows(),
                                         panel_rows_of_chunk(call.arguments), work, call);
}

}  // namespace losscli::cpu
