"""Mistakes in the kernels for dense operands, and in their launches."""

from __future__ import annotations

from .mutation import Mutation

HINGE = ("hinge",)
"""Its target is one row that repeats."""

DENSE = (
    Mutation(
        "elementwise/cuda/flat_kernel.cuh",
        "i < packs; i += kThreads",
        "i + 1 < packs; i += kThreads",
        "a ragged tile",
    ),
    Mutation(
        "elementwise/cuda/flat_kernel.cuh",
        "blocks.index == 0 && last <",
        "last <",
        "a tail a block",
    ),
    Mutation(
        "elementwise/cuda/flat_kernel.cuh",
        "blocks.index == 0 && last < arguments.size",
        "false",
        "the tail",
        dtypes=("bfloat16",),
    ),
    Mutation(
        "elementwise/cuda/flat_kernel.cuh",
        "    carried.add(sum);\n    if constexpr",
        "    carried = Sum(), carried.add(sum);\n    if constexpr",
        "all but the last tile",
    ),
    Mutation(
        "elementwise/cuda/flat_kernel.cuh",
        "int64_t{blocks.count} * kPacks",
        "int64_t{blocks.count} * kPacks * 2",
        "every second tile",
    ),
    Mutation(
        "elementwise/cuda/flat_kernel.cuh",
        "base + kPacks <= packs",
        "base + kPacks <= packs + 1",
        "a ragged tile is taken for a whole one",
    ),
    Mutation(
        "elementwise/cuda/flat_kernel.cuh",
        "wrap(at + row.step, row.packs)",
        "at + row.step",
        "steps beyond the end of a row",
        losses=HINGE,
    ),
    Mutation(
        "elementwise/cuda/flat_kernel.cuh",
        "wrap(column + row.advance, row.packs)",
        "column",
        "the same columns for each tile",
        losses=HINGE,
    ),
    Mutation(
        "elementwise/cuda/flat_kernel.cuh",
        "(blocks.index * kPacks + threadIdx.x) % row.packs",
        "threadIdx.x % row.packs",
        "the same columns for each block",
        losses=HINGE,
    ),
    Mutation(
        "elementwise/cuda/flat_kernel.cuh",
        "(threads % packs)",
        "((threads - 1) % packs)",
        "a step less than the threads",
        losses=HINGE,
        dtypes=("bfloat16",),
    ),
    Mutation(
        "elementwise/cuda/worker.cuh",
        "--blocks.index, --blocks.count;",
        "--blocks.count;",
        "the first tile",
    ),
    Mutation(
        "elementwise/cuda/few_kernel.cuh",
        "const bool is_there = i < arguments.packs;",
        "const bool is_there = i + 1 < arguments.packs;",
        "the last pack",
    ),
    Mutation(
        "elementwise/cuda/few_kernel.cuh",
        "const bool is_there = i < arguments.packs;",
        "const bool is_there = true;",
        "the last pack counts many times",
    ),
    Mutation(
        "elementwise/cuda/few_kernel.cuh",
        "* arguments.row;",
        "* (arguments.row + 1);",
        "a repeated row",
        losses=HINGE,
    ),
    Mutation(
        "elementwise/cuda/few_kernel.cuh",
        "/ row + 1)",
        "/ row)",
        "the inverse of a row is too small",
        losses=HINGE,
    ),
    Mutation(
        "elementwise/cuda/dense.cuh",
        "(rows.length > kPack || rows.length == size)",
        "true",
        "a row of one pack",
        losses=HINGE,
    ),
    Mutation(
        "elementwise/cuda/library.cu",
        "aligned(arguments.operands[n].data) &&",
        "",
        "misaligned operands",
    ),
    Mutation(
        "elementwise/cuda/library.cu",
        "row < kMostRow && row % pack == 0 &&",
        "row < kMostRow &&",
        "rows of no whole packs",
        losses=HINGE,
    ),
    Mutation(
        "elementwise/cuda/rows.h",
        "rows.operands |= 1u << n;",
        "rows.operands = 1u << n;",
        "only the last of several rows that repeat",
        losses=("weighted_hinge",),
        unseen="in the checks one operand is such a row; tests/kernels/test_weights.py has two",
    ),
    Mutation(
        "elementwise/cuda/rows.h",
        "return operand_count == 2 ? n == 1 : (rows",
        "return operand_count == 2 ? n == 1 : (2 * rows",
        "the operand before a row that repeats",
        losses=("weighted_hinge",),
        checks=("broadcasts", "layouts", "gradients"),
    ),
    Mutation(
        "core/cuda/memory.cuh",
        "__float2bfloat16_rn",
        "__float2bfloat16_rz",
        "bfloat16 cut off, not rounded",
        dtypes=("bfloat16",),
    ),
    Mutation(
        "losses/elementwise/loss.h",
        "max.NaN.f32",
        "max.f32",
        "NaN lost in the clamp",
        losses=HINGE,
    ),
)

INCOMING = (
    Mutation(
        "elementwise/cuda/incoming.cuh",
        "scale * number_of(known.bits_, arguments.dtype)",
        "scale",
        "the incoming gradient",
    ),
    Mutation(
        "elementwise/cuda/incoming.cuh",
        "return found != written || written == kNothingWritten;",
        "return written == kNothingWritten;",
        "the incoming gradient is not compared",
    ),
    Mutation(
        "elementwise/cuda/incoming.cuh",
        "is_confident(expectation) ? expected_bits(expectation) : kNothingWritten",
        "expected_bits(expectation)",
        "gradients are noted that are not written",
    ),
    Mutation(
        "elementwise/cuda/incoming.cuh",
        "scale * __longlong_as_double(expected_bits(expectation))",
        "scale",
        "gradients are written for 1 and noted for another number",
    ),
    Mutation(
        "elementwise/cuda/incoming.cuh",
        "if (leads) learn(*arguments.expectation, found);",
        "",
        "nothing is learnt",
        equivalent="backward compares what was written: a wrong guess costs time alone",
    ),
    Mutation(
        "elementwise/cuda/incoming.cuh",
        "if (arguments.guess == Guess::check)",
        "",
        "a backward for which nothing was written finds what an earlier forward wrote",
    ),
)
