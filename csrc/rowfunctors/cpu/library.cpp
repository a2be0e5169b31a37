// The rows of a call, divided among OpenMP's threads. The library is compiled once for each loss.
#include <algorithm>
#include <cstdint>

#include "elementwise/cpu/convert.h"
#include "rowfunctors/row.h"
#include LOSSCLI_FUNCTOR_HEADER

namespace losscli::rowfunctors {
namespace {

// Classes that are computed together, and partial sums of a row.
constexpr int kGroup = 64;
constexpr int64_t kLeastElements = 1 << 14;  // below which threads cost more than they save

template <typename Real, typename Stored>
class Rows {
  using Loss = LOSSCLI_FUNCTOR<Real>;
  static constexpr int kOperands = Loss::kOperands;

 public:
  explicit Rows(const Call& call) : call_(call), loss_(call), scale_(Real(1 / call.temperature)) {}

  void compute(int64_t row) const {
    if (call_.mask && !call_.mask[row]) return skip(row);
    const Stored* logits[kOperands];
    LogSoftmax<Real> softmax[kOperands];
    for (int k = 0; k < kOperands; ++k) {
      logits[k] = static_cast<const Stored*>(call_.operands[k]) + row * call_.strides[k];
      softmax[k] = LogSoftmax<Real>(partition(logits[k]));
    }
    Real sums[Loss::kSums] = {};
    if (loss_.needs_sums()) add(logits, softmax, sums);
    if (call_.values[0]) write_values(row, logits[0], softmax[0], sums);
    if (std::any_of(call_.gradients, call_.gradients + kOperands, [](void* to) { return to; }))
      write_gradients(row, logits, softmax, sums);
  }

 private:
  // A group of logits over the temperature; -inf beyond the end.
  int64_t take(const Stored* row, int64_t first, Real* __restrict group) const {
    const int64_t count = std::min<int64_t>(kGroup, call_.classes - first);
    for (int i = 0; i < count; ++i) group[i] = cpu::to_value<Real>(row[first + i]) * scale_;
    std::fill(group + count, group + kGroup, kLeast<Real>);
    return count;
  }

  Partition<Real> partition(const Stored* row) const {
    Real group[kGroup], sums[kGroup] = {};
    Real largest = kLeast<Real>;
    for (int64_t first = 0; first < call_.classes; first += kGroup) {
      take(row, first, group);
      Real most = largest;
      for (int i = 0; i < kGroup; ++i) most = group[i] > most ? group[i] : most;
      if (most == kLeast<Real>) continue;
      const Real factor = decay(largest - most);
      for (int i = 0; i < kGroup; ++i) sums[i] = sums[i] * factor + decay(group[i] - most);
      largest = most;
    }
    return {largest, total(sums)};
  }

  static Real total(const Real* sums) {
    double all = 0;
    for (int i = 0; i < kGroup; ++i) all += sums[i];
    return static_cast<Real>(all);
  }

  void add(const Stored* const* rows, const LogSoftmax<Real>* softmax, Real* sums) const {
    Real group[kOperands][kGroup], lanes[Loss::kSums][kGroup] = {};
    for (int64_t first = 0; first < call_.classes; first += kGroup) {
      for (int k = 0; k < kOperands; ++k) take(rows[k], first, group[k]);
      for (int i = 0; i < kGroup; ++i) {
        Real log_p[kOperands], p[kOperands], terms[Loss::kSums] = {};
        for (int k = 0; k < kOperands; ++k) {
          log_p[k] = softmax[k].of(group[k][i]);
          p[k] = decay(log_p[k]);
        }
        loss_.add(log_p, p, terms);
        for (int s = 0; s < Loss::kSums; ++s) lanes[s][i] += terms[s];
      }
    }
    for (int s = 0; s < Loss::kSums; ++s) sums[s] = total(lanes[s]);
  }

  void write_values(int64_t row, const Stored* logits, const LogSoftmax<Real>& softmax,
                    const Real* sums) const {
    Real token = 0, values[Loss::kValues];
    if constexpr (Loss::kTokens) {
      const int64_t number = call_.tokens[row];
      token = number < 0 || number >= call_.classes
                  ? kNaN<Real>
                  : softmax.of(cpu::to_value<Real>(logits[number]) * scale_);
    }
    loss_.values(sums, token, values);
    for (int v = 0; v < Loss::kValues; ++v)
      if (call_.values[v]) static_cast<Real*>(call_.values[v])[row] = values[v];
  }

  void write_gradients(int64_t row, const Stored* const* rows, const LogSoftmax<Real>* softmax,
                       const Real* sums) const {
    Real incoming[Loss::kValues];
    for (int v = 0; v < Loss::kValues; ++v)
      incoming[v] =
          call_.incoming[v] ? static_cast<const Real*>(call_.incoming[v])[row] * scale_ : Real(0);
    const int64_t token = Loss::kTokens ? call_.tokens[row] : -1;
    if (Loss::kTokens && (token < 0 || token >= call_.classes))
      for (Real& each : incoming) each = kNaN<Real>;
    Real group[kOperands][kGroup], found[kOperands][kGroup];
    for (int64_t first = 0; first < call_.classes; first += kGroup) {
      int64_t count = 0;
      for (int k = 0; k < kOperands; ++k) count = take(rows[k], first, group[k]);
      for (int i = 0; i < kGroup; ++i) {
        Real log_p[kOperands], p[kOperands], gradients[kOperands];
        for (int k = 0; k < kOperands; ++k) {
          log_p[k] = softmax[k].of(group[k][i]);
          p[k] = decay(log_p[k]);
        }
        loss_.gradients(log_p, p, sums, first + i == token, incoming, gradients);
        for (int k = 0; k < kOperands; ++k) found[k][i] = gradients[k];
      }
      for (int k = 0; k < kOperands; ++k) {
        if (!call_.gradients[k]) continue;
        Stored* to = static_cast<Stored*>(call_.gradients[k]) + row * call_.classes + first;
        for (int64_t i = 0; i < count; ++i) to[i] = cpu::from_real<Stored>(found[k][i]);
      }
    }
  }

  // A row that the mask leaves out.
  void skip(int64_t row) const {
    for (int v = 0; v < Loss::kValues; ++v)
      if (call_.values[v]) static_cast<Real*>(call_.values[v])[row] = 0;
    for (int k = 0; k < kOperands; ++k)
      if (call_.gradients[k])
        std::fill_n(static_cast<Stored*>(call_.gradients[k]) + row * call_.classes, call_.classes,
                    cpu::from_real<Stored>(Real(0)));
  }

  const Call& call_;
  Loss loss_;
  Real scale_;
};

template <typename Real, typename Stored>
const char* run(const Call& call) {
  const Rows<Real, Stored> rows(call);
  const bool several = call.rows > 1 && call.rows * call.classes >= kLeastElements;
#pragma omp parallel for schedule(static) if (several)
  for (int64_t row = 0; row < call.rows; ++row) rows.compute(row);
  return nullptr;
}

}  // namespace
}  // namespace losscli::rowfunctors

LOSSCLI_EXPORT const char* losscli_row_functor(const losscli::rowfunctors::Call* call) {
  using namespace losscli;
  using namespace losscli::rowfunctors;
  switch (call->dtype) {
    case DType::float32:
      return run<float, float>(*call);
    case DType::float64:
      return run<double, double>(*call);
    case DType::float16:
      return run<float, cpu::Half>(*call);
    case DType::bfloat16:
      return run<float, cpu::BFloat16>(*call);
    default:
      return "rows must be in float32, float64, float16 or bfloat16";
  }
}
