// One row whose classes are walked in pieces: its largest logit, the sums over its classes, its
// gradient. Pieces of a row may be walked on different threads.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "rows/cpu/call.h"
#include "rows/cpu/exponential.h"
#include "rows/cpu/group_sum.h"

namespace losscli::cpu {

// Classes whose sums are a number of their own: those of a row are added in the order of its
// pieces, whichever threads walk them.
constexpr int64_t kPiece = 8192;

template <typename Real>
struct Peak {
  Real logit = -std::numeric_limits<Real>::infinity();
  int64_t index = -1;  // -1 where no logit is larger than -inf

  void add(const Peak& later) {
    if (later.logit > logit) *this = later;
  }
};

// Of the classes but that of the largest logit; see RowSums.
struct PieceSums {
  double rest = 0;
  double distance = 0;
  double others = 0;

  void add(const PieceSums& later) {
    rest += later.rest;
    distance += later.distance;
    others += later.others;
  }
};

template <typename Stored, typename Real>
class Row {
 public:
  // `kept` has room for a row and a group more, where what a pass found is kept for the next one;
  // null where each computes it again.
  Row(const Call<Stored, Real>& call, Real* kept)
      : call_(call),
        kept_(kept),
        keeps_logits_(kept && (call.transformed || !std::is_same_v<Stored, Real> ||
                               call.arguments.strides[0].element != 1)) {}

  void open(int64_t row);

  // The steps, in this order, each for the classes [first, last) of a piece.
  Peak<Real> find_peak(int64_t first, int64_t last);
  PieceSums add_up(int64_t first, int64_t last, const Peak<Real>& peak);
  void write_gradient(int64_t first, int64_t last);

  // Between the last two, with what they found over all pieces: the row's loss, 0 where it is
  // ignored. Writes what is wanted of a row but its gradient.
  double finish(const Peak<Real>& peak, const PieceSums& sums);

  // Whether nothing is to be found but a gradient of 0.
  bool is_skipped() const { return ignored_; }

  // Asks for the logits of a row while this one is computed.
  void ask_ahead_for(int64_t row) { next_ = Strided<Stored>(call_.arguments, 0, row).data; }

 private:
  const Real* logits(int64_t first, int64_t count, Real* buffer) const;
  template <Kind kKind>
  PieceSums add_up_as(int64_t first, int64_t last);
  template <Kind kKind>
  void gradient_group(int64_t first, int64_t count, Real* gradient) const;

  const Call<Stored, Real>& call_;
  Real* const kept_;
  const bool keeps_logits_;

  int64_t row_ = 0;
  int64_t target_ = kNoTarget;
  bool ignored_ = false;
  Strided<Stored> logits_, probabilities_;
  Stored* gradient_ = nullptr;
  const Stored* next_ = nullptr;

  Peak<Real> peak_;
  // Of the gradient, all times the incoming one.
  Real factor_ = 0, hard_ = 0, share_ = 0, largest_ = 0;
};

template <typename Stored, typename Real>
void Row<Stored, Real>::open(int64_t row) {
  const RowArguments& arguments = call_.arguments;
  row_ = row;
  target_ = call_.target(row);
  ignored_ = !arguments.operands[1] && target_ == kNoTarget;
  logits_ = Strided<Stored>(arguments, 0, row);
  if (arguments.operands[1]) probabilities_ = Strided<Stored>(arguments, 1, row);
  gradient_ = call_.gradient ? call_.gradients(row) : nullptr;
  next_ = nullptr;
}

// A group as the loss takes it, padded with -inf.
template <typename Stored, typename Real>
const Real* Row<Stored, Real>::logits(int64_t first, int64_t count, Real* buffer) const {
  constexpr Real kPadding = -std::numeric_limits<Real>::infinity();
  if constexpr (std::is_same_v<Real, double>) {
    if (call_.transformed) {
      logits_.fill(first, count, buffer);
      std::fill(buffer + count, buffer + kGroup, 0.0);
      call_.transform.apply(buffer, kGroup);
      std::fill(buffer + count, buffer + kGroup, kPadding);
      return buffer;
    }
  }
  return logits_.take(first, count, buffer, kPadding);
}

template <typename Stored, typename Real>
Peak<Real> Row<Stored, Real>::find_peak(int64_t first, int64_t last) {
  constexpr int64_t kBlock = 16 * kGroup;  // whose largest logit is found before its place
  Peak<Real> peak;
  int64_t place = first;
  alignas(kLine) Real buffer[kGroup];
  for (int64_t block = first; block < last; block += kBlock) {
    alignas(kLine) Real lanes[kGroup];
    std::fill_n(lanes, kGroup, -std::numeric_limits<Real>::infinity());
    const int64_t end = std::min(last, block + kBlock);
    for (int64_t i = block; i < end; i += kGroup) {
      const int64_t count = std::min<int64_t>(kGroup, end - i);
      if (logits_.stride == 1) ask_ahead<false>(logits_.data + i, count);
      const Real* const z = logits(i, count, keeps_logits_ ? kept_ + i : buffer);
      for (int lane = 0; lane < kGroup; ++lane)
        lanes[lane] = z[lane] > lanes[lane] ? z[lane] : lanes[lane];
    }
    const Real largest = largest_of<kGroup>(lanes);
    if (largest > peak.logit) {
      peak.logit = largest;
      place = block;
    }
  }
  if (!(peak.logit > -std::numeric_limits<Real>::infinity())) return peak;
  for (int64_t i = place; peak.index < 0; i += kGroup) {
    const int64_t count = std::min<int64_t>(kGroup, last - i);
    const Real* const z = keeps_logits_ ? kept_ + i : logits(i, count, buffer);
    // Side by side in vectors; one by one only where it is.
    int found = 0;
    for (int lane = 0; lane < kGroup; ++lane) found += z[lane] == peak.logit;
    if (found == 0) continue;
    peak.index = i + (std::find(z, z + count, peak.logit) - z);
  }
  return peak;
}

template <typename Stored, typename Real>
PieceSums Row<Stored, Real>::add_up(int64_t first, int64_t last, const Peak<Real>& peak) {
  peak_ = peak;
  return with_kind(call_.kind, [&](auto kind) { return add_up_as<kind()>(first, last); });
}

template <typename Stored, typename Real>
template <Kind kKind>
PieceSums Row<Stored, Real>::add_up_as(int64_t first, int64_t last) {
  GroupSum rest, distance, others;
  const Real max = peak_.logit;
  const double hard = call_.formula.hard, share = call_.formula.share;
  alignas(kLine) Real z_buffer[kGroup], p_buffer[kGroup];
  alignas(kLine) Real exponentials[kGroup];
  alignas(kLine) double distances[kGroup], weighs[kGroup];
  for (int64_t i = first; i < last; i += kGroup) {
    const int64_t count = std::min<int64_t>(kGroup, last - i);
    const Real* const z = keeps_logits_ ? kept_ + i : logits(i, count, z_buffer);
    if (next_) ask<false>(next_ + i, count, 0);
    for (int lane = 0; lane < kGroup; ++lane) exponentials[lane] = unit_exponential(z[lane], max);
    if constexpr (kKind != Kind::number) {
      const Real* const w = call_.weights(i);
      if constexpr (kKind == Kind::probabilities) {
        const Real* const p = probabilities_.take(i, count, p_buffer, Real(0));
        for (int lane = 0; lane < kGroup; ++lane)
          weighs[lane] =
              (static_cast<double>(p[lane]) * hard + share) * static_cast<double>(w[lane]);
      } else {
        for (int lane = 0; lane < kGroup; ++lane) weighs[lane] = static_cast<double>(w[lane]);
      }
      for (int lane = 0; lane < kGroup; ++lane)
        distances[lane] = weighs[lane] * (static_cast<double>(max) - static_cast<double>(z[lane]));
      std::fill(distances + count, distances + kGroup, 0.0);
    }
    if (kept_) std::copy_n(exponentials, kGroup, kept_ + i);
    if (peak_.index >= i && peak_.index < i + count) {
      exponentials[peak_.index - i] = 0;
      if constexpr (kKind == Kind::probabilities) weighs[peak_.index - i] = 0;
    }
    rest.add<kGroup>(exponentials);
    if constexpr (kKind != Kind::number) distance.add<kGroup>(distances);
    if constexpr (kKind == Kind::probabilities) {
      std::fill(weighs + count, weighs + kGroup, 0.0);
      others.add<kGroup>(weighs);
    }
  }
  return {rest.total() / kUnit<Real>, distance.total(), others.total()};
}

template <typename Stored, typename Real>
double Row<Stored, Real>::finish(const Peak<Real>& peak, const PieceSums& sums) {
  peak_ = peak;
  const bool number = call_.kind != Kind::probabilities;
  RowSums row;
  row.max = peak.logit;
  // An infinite logit makes all that is found of its row NaN.
  row.rest = std::isfinite(peak.logit) ? sums.rest : std::numeric_limits<double>::quiet_NaN();
  row.distance = sums.distance;
  row.others = sums.others;
  alignas(kLine) Real buffer[kGroup];
  if (peak.index >= 0) {
    row.top = call_.weight(peak.index);
    if (!number)
      row.largest = (to_value<double>(probabilities_.data[peak.index * probabilities_.stride]) *
                         call_.formula.hard +
                     call_.formula.share) *
                    row.top;
  }
  if (number && !ignored_) {
    const double logit = logits(target_, 1, buffer)[0];
    row.gap = row.max - logit;
    row.target = call_.weight(target_);
    row.on_top = target_ == peak.index;
  }
  const RowResult result = with_kind(
      call_.kind, [&](auto kind) { return finish_row<kind(), Real>(call_.formula, row); });
  if (gradient_ && !ignored_) {
    const double incoming = call_.incoming.of(row_, 0) * call_.gradient_scale;
    factor_ = static_cast<Real>(result.factor * incoming / kUnit<Real>);
    hard_ = static_cast<Real>((number ? result.hard : call_.formula.hard) * incoming);
    share_ = static_cast<Real>(call_.formula.share * incoming);
    largest_ = static_cast<Real>(result.largest * incoming);
  }
  // Without classes there is nothing to add up.
  return ignored_ || call_.arguments.length == 0 ? 0 : result.loss;
}

template <typename Stored, typename Real>
template <Kind kKind>
void Row<Stored, Real>::gradient_group(int64_t first, int64_t count, Real* gradient) const {
  alignas(kLine) Real buffer[kGroup];
  const Real factor = factor_, hard = hard_, share = share_;
  const Real* e = kept_ + first;
  if (!kept_) {
    const Real* const z = logits(first, count, buffer);
    const Real max = peak_.logit;
    for (int lane = 0; lane < kGroup; ++lane) buffer[lane] = unit_exponential(z[lane], max);
    e = buffer;
  }
  if constexpr (kKind == Kind::number) {
    for (int lane = 0; lane < kGroup; ++lane) gradient[lane] = e[lane] * factor;
  } else {
    const Real* const w = call_.weights(first);
    if constexpr (kKind == Kind::probabilities) {
      alignas(kLine) Real p_buffer[kGroup];
      const Real* const p = probabilities_.take(first, count, p_buffer, Real(0));
      for (int lane = 0; lane < kGroup; ++lane)
        gradient[lane] = e[lane] * factor - (p[lane] * hard + share) * w[lane];
    } else {
      for (int lane = 0; lane < kGroup; ++lane) gradient[lane] = e[lane] * factor - w[lane] * share;
    }
  }
  const auto within = [&](int64_t index) { return index >= first && index < first + count; };
  if (within(target_)) gradient[target_ - first] -= hard;
  if (within(peak_.index)) gradient[peak_.index - first] = largest_;
  if constexpr (std::is_same_v<Real, double>) {
    if (call_.transform.softcap == 0) return;
    logits_.fill(first, count, buffer);
    std::fill(buffer + count, buffer + kGroup, 0.0);
    call_.transform.multiply_slopes(buffer, gradient, kGroup);
  }
}

template <typename Stored, typename Real>
void Row<Stored, Real>::write_gradient(int64_t first, int64_t last) {
  const int64_t stride = call_.arguments.gradient_strides[0].element;
  const auto compute = [&](int64_t begin, int64_t count, Real* gradient) {
    if (ignored_) return void(std::fill_n(gradient, kGroup, Real(0)));
    with_kind(call_.kind, [&](auto kind) { gradient_group<kind()>(begin, count, gradient); });
  };
  int64_t i = first;
  while (i < last) {
    int64_t count = std::min<int64_t>(kGroup, last - i);
    Stored* const to = gradient_ + i * stride;
    const int64_t behind = reinterpret_cast<uintptr_t>(to) % kLine;
    // Up to the first line that can be streamed whole.
    if (call_.streamed && behind != 0)
      count = std::min<int64_t>(count, (kLine - behind) / static_cast<int64_t>(sizeof(Stored)));
    alignas(kLine) Real gradient[kGroup];
    compute(i, count, gradient);
    if (stride != 1) {
      for (int64_t k = 0; k < count; ++k) to[k * stride] = from_real<Stored>(gradient[k]);
    } else if (count < kGroup) {
      for (int64_t k = 0; k < count; ++k) to[k] = from_real<Stored>(gradient[k]);
    } else if (call_.streamed) {
      alignas(kLine) Stored narrowed[kGroup];
      narrow_run(gradient, narrowed, kGroup);
      stream<kGroup * sizeof(Stored)>(narrowed, to);
    } else {
      narrow_run(gradient, to, kGroup);
    }
    i += count;
  }
}

}  // namespace losscli::cpu
