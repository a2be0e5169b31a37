"""Mistakes in the CPU's loops, in how they walk operands, and in their sums."""

from __future__ import annotations

from .mutation import Mutation

HINGE = ("hinge",)
"""Its target is one row that repeats."""

LOOPS = (
    Mutation(
        "elementwise/cpu/loops.cpp",
        "std::copy_n(from + first, padded.count, in[i])",
        "std::copy_n(from + first, padded.count - 1, in[i])",
        "the last element of a tail is not read",
    ),
    Mutation(
        "elementwise/cpu/loops.cpp",
        "  if (tile.count < kLanes) lanes.clear(tile.count);\n",
        "",
        "padding counts",
        losses=HINGE,
    ),
    Mutation(
        "elementwise/cpu/loops.cpp",
        "kOutput ? scale * g[lane] : scale",
        "kOutput ? g[lane] : scale",
        "a grad_output for each element is not scaled",
        equivalent="without a reduction the scale is 1, with one grad_output is a single number",
    ),
    Mutation(
        "elementwise/cpu/loops.cpp",
        "stream<kBytes>(lanes, to);",
        "stream<kBytes / 2>(lanes, to);",
        "half of what goes past the caches",
    ),
    Mutation(
        "elementwise/cpu/loops.cpp",
        "std::copy_n(out[i], padded.count, to.data + first)",
        "std::copy_n(out[i], padded.count - 1, to.data + first)",
        "the last result of a tail is not written",
    ),
    Mutation(
        "elementwise/cpu/loops.cpp",
        "std::copy_n(out[i], padded.count, to.data + first)",
        "std::copy_n(out[i], padded.count + 1, to.data + first)",
        "a result beyond the end is written",
        unseen="an implementation allocates its results itself, without bands around them to look "
        "at",
    ),
    Mutation(
        "elementwise/cpu/second_derivatives.cpp",
        "factor = scale * at.grad_output[i]",
        "factor = scale",
        "second derivatives without the incoming gradient",
    ),
    Mutation(
        "elementwise/cpu/second_derivatives.cpp",
        "along += v[k] * gradient[k]",
        "along = v[k] * gradient[k]",
        "the incoming gradient's derivative of the last operand alone",
    ),
    Mutation(
        "elementwise/cpu/elementwise.cpp",
        "end = std::min(begin + chunk, size)",
        "end = begin + chunk - kTile",
        "the last tile of a chunk",
    ),
    Mutation(
        "elementwise/cpu/elementwise.cpp",
        "const int64_t begin = c * chunk,",
        "const int64_t begin = static_cast<int>(c * chunk),",
        "int for int64",
        losses=HINGE,
        dtypes=("bfloat16",),
        sizes=("65536x32800",),
        checks=("value",),
    ),
    Mutation(
        "elementwise/cpu/elementwise.cpp",
        "tile.count = std::min(kTile, end - first);",
        "tile.count = kTile;",
        "a ragged tile is taken for a whole one",
    ),
    Mutation(
        "elementwise/cpu/elementwise.cpp",
        "arguments.scale * incoming.factor()",
        "incoming.factor()",
        "1/N of the gradient",
    ),
    Mutation(
        "elementwise/cpu/elementwise.cpp",
        "    if (arguments.operands[k].dtype != arguments.dtype) return false;\n",
        "    (void)k;\n",
        "a dtype read as another",
        dtypes=("float16",),
    ),
)

INCOMING = (
    Mutation(
        "core/cpu/incoming_number.h",
        "found_ != expectation_->written || found_ == kNothingWritten",
        "expectation_->written == kNothingWritten",
        "the incoming gradient is not compared",
    ),
    Mutation(
        "core/cpu/incoming_number.h",
        "wanted_ ? found_ : kNothingWritten",
        "found_",
        "gradients are noted that are not written",
    ),
    Mutation(
        "core/cpu/incoming_number.h",
        "return bit_cast<double>(found_);",
        "return guess_ == Guess::none ? bit_cast<double>(found_) : 1;",
        "gradients are written for 1 and noted for another number",
    ),
    Mutation(
        "core/expectation.h",
        "expectation.expected = found;",
        "expectation.expected = found + 1;",
        "a wrong grad_output is predicted",
        equivalent="backward compares the prediction: a wrong one only costs time",
    ),
)

WALKS = (
    Mutation(
        "elementwise/cpu/reader.cpp",
        "buffer_ + first % period_",
        "buffer_",
        "how far into an element's repeats a tile begins",
        losses=HINGE,
    ),
    Mutation(
        "elementwise/cpu/reader.cpp",
        "repeats_ = period_ <= kTile &&",
        "repeats_ = period_ <= 4 * kTile &&",
        "a buffer too small for what repeats",
        losses=HINGE,
    ),
    Mutation(
        "elementwise/cpu/reader.cpp",
        "done < period_ + kTile;",
        "done < period_;",
        "a tile behind what repeats",
        losses=HINGE,
    ),
    Mutation(
        "elementwise/cpu/reader.cpp",
        "if (count <= cursor.left()) return",
        "return",
        "a row's end within a tile that is read in memory",
    ),
    Mutation(
        "elementwise/cpu/gather.h",
        "std::min(cursor.left(), count - done)",
        "count - done",
        "a row's end within a tile",
    ),
    Mutation(
        "elementwise/cpu/gather.h",
        "if (done < count) cursor.next_row();",
        "",
        "the same row for the whole tile",
    ),
    Mutation(
        "elementwise/cpu/gather.h",
        "const Cursor within(middle, row);",
        "const Cursor within(middle, 0);",
        "the dimensions within a band",
    ),
    Mutation(
        "elementwise/cpu/walk.h",
        "      offset_ -= index_[d] * walk_.strides[d];\n",
        "",
        "a carry dropped",
    ),
    Mutation(
        "elementwise/cpu/walk.h",
        "      offset_ += walk_.strides[d];\n",
        "      offset_ += walk_.strides[1];\n",
        "the stride of another dimension",
    ),
    Mutation(
        "elementwise/cpu/walk.h",
        "stride == strides[d] * sizes[d]",
        "stride >= strides[d] * sizes[d]",
        "dimensions that are not one are made one",
    ),
    Mutation(
        "elementwise/cpu/transpose.h",
        "block[j * kSide + i]",
        "block[i * kSide + j]",
        "a ragged block is not turned",
    ),
    Mutation(
        "elementwise/cpu/transpose.h",
        "quads[i + 4], 0x31)",
        "quads[i + 4], 0x20)",
        "half of a block of eight",
    ),
    Mutation(
        "elementwise/cpu/writer.h",
        "store_(buffer_, data_ + first * item_,",
        "store_(buffer_, data_ + 0 * first,",
        "converted results of the first tile alone",
    ),
)

SUMS = (
    Mutation(
        "elementwise/cpu/convert.h",
        "_mm256_set1_epi32(0x7fff)",
        "_mm256_setzero_si256()",
        "bfloat16 cut off, not rounded",
        dtypes=("bfloat16",),
    ),
    Mutation(
        "elementwise/cpu/convert.h",
        "half = 0x7e00u;",
        "half = 0x7c00u;",
        "NaN becomes infinity in float16",
        dtypes=("float16",),
    ),
    Mutation(
        "reduce/cpu/partial_sums.h",
        "chunk < chunks_; ++chunk",
        "chunk + 1 < chunks_; ++chunk",
        "the last chunk",
    ),
    Mutation(
        "reduce/cpu/strategies.h",
        "std::min((group + 1) * kGroup, count)",
        "(group + 1) * kGroup",
        "the last group of a tree",
        implementations=("custom:tree",),
    ),
    Mutation(
        "reduce/cpu/strategies.h",
        "int64_t column = 1;",
        "int64_t column = 2;",
        "a column of the second pass",
        implementations=("custom:two_pass",),
    ),
    Mutation(
        "reduce/cpu/lanes.h", "width > 0; width /= 2", "width > 1; width /= 2", "half of the lanes"
    ),
    Mutation(
        "reduce/cpu/lanes.h",
        "    rest[lane] += two_sum(sum[lane], value);",
        "    two_sum(sum[lane], value);",
        "what additions of doubles lose",
        dtypes=("float64",),
    ),
    Mutation(
        "elementwise/cpu/shared_gradient.cpp",
        "part / widths * band;",
        "part / widths;",
        "the rows of a band",
        losses=HINGE,
    ),
    Mutation(
        "elementwise/cpu/shared_gradient.cpp",
        "b < bands; ++b",
        "b + 1 < bands; ++b",
        "the last band of a shared gradient",
        losses=HINGE,
    ),
    Mutation(
        "elementwise/cpu/shared_gradient.cpp",
        "row < together; ++row",
        "row + 1 < together; ++row",
        "the last of the rows that share a tile",
        losses=HINGE,
    ),
    Mutation(
        "elementwise/cpu/shared_gradient.cpp",
        "begin = part % bands * band;",
        "begin = 0 * band;",
        "the first part of a long row for all its parts",
    ),
    Mutation(
        "elementwise/cpu/shared_gradient.cpp",
        "given.strides[order[at]]",
        "given.strides[at]",
        "the strides of other dimensions",
    ),
)

CPU = (*LOOPS, *INCOMING, *WALKS, *SUMS)
