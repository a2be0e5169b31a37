"""Mistakes in the CUDA kernels and in what launches them; the formulas are the CPU's as well."""

from __future__ import annotations

from .mutation import Mutation

HINGE = ("hinge",)
"""Its target is one row that repeats."""

FEW_BLOCKS = ("173x1001",)
"""So that two launches fit on the GPU at a time."""

PASSES = (
    Mutation("cuda/flat_kernel.cuh", "i < packs; i +=", "i + 1 < packs; i +=", "a ragged tile"),
    Mutation("cuda/flat_kernel.cuh", "blocks.index == 0 && last <", "last <", "a tail a block"),
    Mutation(
        "cuda/flat_kernel.cuh",
        "blocks.index == 0 && last < arguments.size",
        "false",
        "the tail",
        dtypes=("bfloat16",),
    ),
    Mutation(
        "cuda/flat_kernel.cuh",
        "    carried += sum;\n    if constexpr",
        "    carried = sum;\n    if constexpr",
        "all but the last tile",
    ),
    Mutation(
        "cuda/flat_kernel.cuh",
        "int64_t{blocks.count} * kPacks",
        "int64_t{blocks.count} * kPacks * 2",
        "every second tile",
    ),
    Mutation(
        "cuda/flat_kernel.cuh",
        "base + kPacks <= packs",
        "base + kPacks <= packs + 1",
        "a ragged tile is taken for a whole one",
    ),
    Mutation(
        "cuda/flat_kernel.cuh",
        "wrap(at + row.step, row.packs)",
        "at + row.step",
        "steps beyond the end of a row",
        losses=HINGE,
    ),
    Mutation(
        "cuda/flat_kernel.cuh",
        "wrap(column + row.advance, row.packs)",
        "column",
        "the same columns for each tile",
        losses=HINGE,
    ),
    Mutation(
        "cuda/flat_kernel.cuh",
        "(blocks.index * kPacks + threadIdx.x) % row.packs",
        "threadIdx.x % row.packs",
        "the same columns for each block",
        losses=HINGE,
    ),
    Mutation(
        "cuda/flat_kernel.cuh",
        "Shape::threads % packs)",
        "(Shape::threads - 1) % packs)",
        "a step less than the threads",
        losses=HINGE,
        dtypes=("bfloat16",),
    ),
    Mutation(
        "cuda/worker.cuh",
        "--blocks.index, --blocks.count;",
        "--blocks.count;",
        "the first tile",
    ),
    Mutation(
        "cuda/general_kernel.cuh",
        "for (int64_t base = int64_t{blocks.index} * kTile;",
        "for (int base = blocks.index * kTile;",
        "int for int64",
        losses=HINGE,
        dtypes=("bfloat16",),
        sizes=("65536x32801",),
        checks=("value",),
    ),
    Mutation(
        "cuda/general_kernel.cuh",
        "int64_t{blocks.count} * kTile",
        "int64_t{blocks.count} * kTile * 2",
        "every second tile",
        losses=HINGE,
    ),
    Mutation(
        "cuda/general_kernel.cuh",
        "offset < count; offset +=",
        "offset + 1 < count; offset +=",
        "the last element",
    ),
    Mutation(
        "cuda/block_kernel.cuh",
        "const bool is_there = i < arguments.packs;",
        "const bool is_there = i + 1 < arguments.packs;",
        "the last pack",
    ),
    Mutation(
        "cuda/block_kernel.cuh",
        "const bool is_there = i < arguments.packs;",
        "const bool is_there = true;",
        "the last pack counts many times",
    ),
    Mutation(
        "cuda/block_kernel.cuh",
        "* arguments.period",
        "* (arguments.period + 1)",
        "a repeated row",
        losses=HINGE,
    ),
    Mutation(
        "cuda/block_kernel.cuh",
        "/ period + 1)",
        "/ period)",
        "the inverse of a period is too small",
        losses=HINGE,
    ),
)

READING_AND_WRITING = (
    Mutation("cuda/worker.cuh", "factor *= incoming;", "", "the incoming gradient"),
    Mutation(
        "cuda/worker.cuh",
        "arguments.skip_unit_gradient && incoming == 1",
        "arguments.skip_unit_gradient",
        "an incoming gradient other than 1",
    ),
    Mutation(
        "cuda/memory.cuh",
        "return element - period_;",
        "return element;",
        "the end of a row",
        losses=HINGE,
    ),
    Mutation("cuda/memory.cuh", "aligned(data_ + first)", "true", "misaligned packs"),
    Mutation(
        "cuda/memory.cuh", "within_ = base % inner_;", "within_ = 0;", "where a repeat begins"
    ),
    Mutation(
        "cuda/memory.cuh",
        "if (period_ >= kTile) return",
        "if (period_ >= kTile / 4) return",
        "a row shorter than a tile wraps once only",
        losses=HINGE,
    ),
    Mutation(
        "cuda/memory.cuh",
        "__float2bfloat16_rn",
        "__float2bfloat16_rz",
        "bfloat16 cut off, not rounded",
        dtypes=("bfloat16",),
    ),
    Mutation(
        "cuda/loss_kernel.cuh",
        "operand.flat(arguments.size) && aligned(operand.data)",
        "operand.flat(arguments.size)",
        "misaligned operands",
    ),
    Mutation(
        "cuda/loss_kernel.cuh",
        "period < kMostRow && period % kPack == 0 &&",
        "period < kMostRow &&",
        "rows of no whole packs",
        losses=HINGE,
    ),
    Mutation(
        "cuda/loss_kernel.cuh",
        "(period > kPack || period == arguments.size)",
        "true",
        "a row of one pack",
        losses=HINGE,
    ),
    Mutation("losses/functor.h", "max.NaN.f32", "max.f32", "NaN lost in the clamp", losses=HINGE),
)

SUMS = (
    Mutation(
        "cuda/reduce.cuh",
        "i < gridDim.x - 1; i += threads",
        "i < gridDim.x - 2; i += threads",
        "the last block's posted sum",
    ),
    Mutation("cuda/reduce.cuh", "    posted[i] = 0;\n", "", "posted sums that stay"),
    Mutation("cuda/reduce.cuh", "count / 2; distance", "count / 4; distance", "half of the lanes"),
    Mutation(
        "cuda/reduce.cuh",
        "scratch[warp] = value;\n  __syncthreads();",
        "scratch[warp] = value;",
        "a barrier",
    ),
    Mutation(
        "cuda/reduce.cuh",
        "  cluster.sync();\n  if (blockIdx",
        "  if (blockIdx",
        "the barrier of a cluster",
    ),
    Mutation(
        "cuda/reduce.cuh",
        "(gridDim.x + kGroup - 1) / kGroup",
        "gridDim.x / kGroup",
        "the last group",
    ),
    Mutation(
        "cuda/reduce.cuh",
        "i < count; i += threads) sum",
        "i + 1 < count; i += threads) sum",
        "the last block's sum",
        implementations=("custom:two_pass",),
    ),
    Mutation(
        "cuda/reduce.cuh",
        "min(each, count - first)",
        "each",
        "the last group's end",
        implementations=("custom:tree",),
    ),
    Mutation(
        "cuda/reduce.cuh",
        "  *memory.total = 0;\n",
        "",
        "a total that is not reset",
        implementations=("custom:atomic",),
    ),
    Mutation(
        "cuda/reduce.cuh",
        '"r"(count - 1)',
        '"r"(count)',
        "a counter that is not reset",
        implementations=("custom:atomic",),
    ),
    Mutation(
        "cuda/sums.h",
        "blocks <= kClusterBlocks &&",
        "blocks <= 2 * kClusterBlocks &&",
        "clusters that are too large",
    ),
    Mutation(
        "cuda/slots.cu",
        "device->slots + next;",
        "device->slots;",
        "one slot for all streams",
        sizes=FEW_BLOCKS,
    ),
    Mutation(
        "cuda/slots.cu",
        "device->slots + lease->slot;",
        "device->slots + kStreamSlots;",
        "one slot for all graphs",
        sizes=FEW_BLOCKS,
    ),
)

OTHER_DERIVATIVES = (
    Mutation(
        "cuda/shared_gradient.cuh",
        "other < kRowsAtOnce",
        "other < kRowsAtOnce - 1",
        "an eighth of the rows",
        losses=HINGE,
    ),
    Mutation(
        "cuda/shared_gradient.cuh",
        "band < cut.bands",
        "band < 1",
        "all bands but one",
        losses=HINGE,
    ),
    Mutation(
        "cuda/shared_gradient.cuh",
        "r += cut.bands * kRowsAtOnce",
        "r += 2 * cut.bands * kRowsAtOnce",
        "half of a band",
        losses=HINGE,
    ),
    Mutation(
        "cuda/shared_gradient.cuh",
        "s += cut.bands * kSharedThreads",
        "s += 2 * cut.bands * kSharedThreads",
        "half of an element's summands",
    ),
    Mutation(
        "cuda/double_backward.cuh",
        "toward_y * hessian.target_target",
        "toward_x * hessian.target_target",
        "a second derivative",
    ),
    Mutation(
        "cuda/double_backward.cuh",
        "if (i >= arguments.size)",
        "if (i + 1 >= arguments.size)",
        "the last second derivative",
    ),
)

CUDA = (*PASSES, *READING_AND_WRITING, *SUMS, *OTHER_DERIVATIVES)
