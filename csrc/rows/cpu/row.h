// One row whose classes are walked in pieces: its largest logit, the sums over its classes, its
// gradient. Pieces of a row may be walked on different threads.
#pragma once

#include <cstdint>

#include "rows/cpu/call.h"
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
  void ask_ahead_for(int64_t row) { next_ = call_.logits(row); }

 private:
  const Real* logits(int64_t first, int64_t count, Real* buffer) const;
  const Real* probabilities(int64_t first, int64_t count, Real* buffer) const {
    return probabilities_.take(first, count, buffer, Real(0));
  }
  template <Kind kKind>
  PieceSums add_up_as(int64_t first, int64_t last);
  template <Kind kKind>
  void gradient_group(int64_t first, int64_t count, Real* gradient) const;
  void zeros(int64_t first, int64_t last) const;

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

}  // namespace losscli::cpu
