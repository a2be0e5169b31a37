#include "rows/cpu/row.h"

#include <algorithm>
#include <cmath>

#include "rows/cpu/exponential.h"

namespace losscli::cpu {

template <typename Stored, typename Real>
void Row<Stored, Real>::open(int64_t row) {
  const RowArguments& arguments = call_.arguments;
  row_ = row;
  target_ = call_.targets.of_row(row);
  ignored_ = !arguments.operands[1] && target_ == kNoTarget;
  logits_ = {call_.logits(row), arguments.strides[0].element};
  if (arguments.operands[1])
    probabilities_ = {call_.probabilities(row), arguments.strides[1].element};
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
    for (int width = kGroup / 2; width > 0; width /= 2)
      for (int lane = 0; lane < width; ++lane)
        lanes[lane] = lanes[lane + width] > lanes[lane] ? lanes[lane + width] : lanes[lane];
    if (lanes[0] > peak.logit) {
      peak.logit = lanes[0];
      place = block;
    }
  }
  if (!(peak.logit > -std::numeric_limits<Real>::infinity())) return peak;
  for (int64_t i = place; peak.index < 0; i += kGroup) {
    const int64_t count = std::min<int64_t>(kGroup, last - i);
    const Real* const z = keeps_logits_ ? kept_ + i : logits(i, count, buffer);
    int64_t lane = 0;
    while (lane < count && z[lane] != peak.logit) ++lane;
    if (lane < count) peak.index = i + lane;
  }
  return peak;
}

template <typename Stored, typename Real>
PieceSums Row<Stored, Real>::add_up(int64_t first, int64_t last, const Peak<Real>& peak) {
  peak_ = peak;
  switch (call_.kind) {
    case Kind::number:
      return add_up_as<Kind::number>(first, last);
    case Kind::smoothed:
      return add_up_as<Kind::smoothed>(first, last);
    default:
      return add_up_as<Kind::probabilities>(first, last);
  }
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
    if (next_)
      ask_ahead<false>(next_ + i - kReadAhead / static_cast<int64_t>(sizeof(Stored)), count);
    for (int lane = 0; lane < kGroup; ++lane) exponentials[lane] = unit_exponential(z[lane], max);
    if constexpr (kKind != Kind::number) {
      const Real* const w = call_.weights(i);
      if constexpr (kKind == Kind::probabilities) {
        const Real* const p = probabilities(i, count, p_buffer);
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
  RowResult result;
  switch (call_.kind) {
    case Kind::number:
      result = losscli::cpu::finish<Kind::number>(call_.formula, row);
      break;
    case Kind::smoothed:
      result = losscli::cpu::finish<Kind::smoothed>(call_.formula, row);
      break;
    default:
      result = losscli::cpu::finish<Kind::probabilities>(call_.formula, row);
  }
  if (gradient_ && !ignored_) {
    const double incoming = call_.incoming.of_row(row_) * call_.gradient_scale;
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
      const Real* const p = probabilities(first, count, p_buffer);
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
    switch (call_.kind) {
      case Kind::number:
        return gradient_group<Kind::number>(begin, count, gradient);
      case Kind::smoothed:
        return gradient_group<Kind::smoothed>(begin, count, gradient);
      default:
        return gradient_group<Kind::probabilities>(begin, count, gradient);
    }
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

template class Row<float, float>;
template class Row<float, double>;
template class Row<double, double>;
template class Row<Half, float>;
template class Row<Half, double>;
template class Row<BFloat16, float>;
template class Row<BFloat16, double>;

}  // namespace losscli::cpu
