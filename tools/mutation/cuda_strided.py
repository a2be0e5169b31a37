"""Mistakes in the kernels for operands of any strides and dtypes."""

from __future__ import annotations

from .mutation import Mutation

HINGE = ("hinge",)
"""Its target is one row that repeats."""

STRIDED = (
    Mutation(
        "elementwise/cuda/strided_kernel.cuh",
        "static_cast<int64_t>(along[u]) * arguments.operands[k].carries[d];",
        "0;",
        "a carry dropped",
    ),
    Mutation(
        "elementwise/cuda/strided_kernel.cuh",
        "first * arguments.operands[k].strides[d]",
        "first * arguments.operands[k].strides[0]",
        "the stride of another dimension",
    ),
    Mutation(
        "elementwise/cuda/strided_kernel.cuh",
        "to.strides[d + 1] - space.sizes[d] * to.strides[d]",
        "to.strides[d + 1]",
        "a carry that does not go back",
    ),
    Mutation(
        "elementwise/cuda/strided_kernel.cuh",
        "return offset(u) <= last; }",
        "return offset(u) < last; }",
        "the last element",
    ),
    Mutation(
        "elementwise/cuda/strided_kernel.cuh",
        "int64_t{blocks.count} * kTile",
        "int64_t{blocks.count} * kTile * 2",
        "every second tile",
        unseen="the shapes of the checks that no other kernel takes have a tile for each block",
    ),
    Mutation(
        "elementwise/cuda/division.h",
        "/ divisor) + 1;\n    if",
        "/ divisor);\n    if",
        "the inverse of a size is too small",
    ),
    Mutation(
        "elementwise/cuda/lines_kernel.cuh",
        "int64_t{blocks.count} * kWarps",
        "int64_t{blocks.count} * kWarps * 2",
        "every second segment",
        losses=HINGE,
        dtypes=("bfloat16",),
    ),
    Mutation(
        "elementwise/cuda/lines_kernel.cuh",
        "return place(from + u) < left; }",
        "return place(from + u) + count < left; }",
        "the last of a line",
        losses=HINGE,
        dtypes=("bfloat16",),
    ),
    Mutation(
        "elementwise/cuda/lines_kernel.cuh",
        "bases[k] += first * arguments.operands[k].along;",
        "bases[k] += 0 * first;",
        "the first segment for all of a line",
        losses=HINGE,
        dtypes=("bfloat16",),
    ),
    Mutation(
        "elementwise/cuda/lines_kernel.cuh",
        "bases[k] += at * arguments.operands[k].strides[d];",
        "bases[k] += static_cast<int>(at * arguments.operands[k].strides[d]);",
        "int for int64",
        losses=HINGE,
        dtypes=("bfloat16",),
        sizes=("65536x32801",),
        checks=("value",),
    ),
    Mutation(
        "elementwise/cuda/lines_kernel.cuh",
        "from.strides[0] == 0;",
        "false;",
        "an element that repeats along a line is read as a pack",
    ),
    Mutation(
        "elementwise/cuda/lines_kernel.cuh",
        "    if (operand.strides[d] % count != 0) return false;",
        "    if (count == 0) return false;",
        "lines that begin within a pack",
    ),
    Mutation(
        "elementwise/cuda/lines_kernel.cuh",
        "reinterpret_cast<uintptr_t>(operand.data) % bytes == 0",
        "bytes != 0",
        "misaligned lines",
    ),
    Mutation(
        "elementwise/cuda/panels_kernel.cuh",
        "first_column * arguments.places[arguments.across].strides[k]",
        "first_column * 0",
        "the first piece of a row for all",
    ),
    Mutation(
        "elementwise/cuda/panels_kernel.cuh",
        "inside && row_at(from + u) <= last",
        "inside",
        "rows beyond a ragged panel",
    ),
    Mutation(
        "elementwise/cuda/panels_kernel.cuh",
        "stands && first_column + column < arguments.size_across",
        "stands",
        "columns beyond a ragged panel",
    ),
    Mutation(
        "elementwise/cuda/panels_kernel.cuh",
        "bases[k] += at * place.strides[k];",
        "bases[k] += 0 * at;",
        "the first plane for all",
    ),
    Mutation(
        "elementwise/cuda/panels_kernel.cuh",
        "first_row + row) *",
        "row) *",
        "where a panel is written",
    ),
    Mutation(
        "elementwise/cuda/squares_kernel.cuh",
        "static_cast<int64_t>(from + u) * arguments.out_down",
        "static_cast<int64_t>(from + u)",
        "where a line of a square is written",
        dtypes=("bfloat16",),
    ),
    Mutation(
        "elementwise/cuda/staged_kernel.cuh",
        "staged[operand.slot][line + u * kStep][place]",
        "staged[operand.slot][place][line + u * kStep]",
        "a tile is not turned",
    ),
    Mutation(
        "elementwise/cuda/staged_kernel.cuh",
        "    __syncthreads();\n#pragma unroll",
        "#pragma unroll",
        "the barrier before a tile is read",
    ),
    Mutation(
        "elementwise/cuda/staged_kernel.cuh",
        "first_down * arguments.operands[k].down",
        "first_down * arguments.operands[k].across",
        "the stride of another dimension",
    ),
    Mutation(
        "elementwise/cuda/staged_kernel.cuh",
        "place < across && line + u * kStep < down",
        "place < across",
        "lines beyond a ragged tile",
    ),
    Mutation(
        "elementwise/cuda/staged_kernel.cuh",
        "in_group / rows;",
        "in_group / kStagedGroup;",
        "a ragged group of tiles",
    ),
    Mutation(
        "elementwise/cuda/staged_kernel.cuh",
        "first_down * arguments.out_down;",
        "first_down;",
        "where a tile is written",
    ),
    Mutation(
        "elementwise/cuda/any_dtype.cuh",
        "const bool floating = dtype == DType::float64;",
        "const bool floating = true;",
        "int64 read as float64",
    ),
)
