"""Mistakes in sums on a GPU, in their shared memory, and in other derivatives."""

from __future__ import annotations

from .mutation import Mutation

HINGE = ("hinge",)
"""Its target is one row that repeats."""

SUMS = (
    Mutation(
        "reduce/cuda/grid_sum.cuh",
        "i < gridDim.x - 1; i += threads",
        "i < gridDim.x - 2; i += threads",
        "the last block's posted sum",
    ),
    Mutation(
        "reduce/cuda/grid_sum.cuh",
        "      posted[i * Sum::kWords + w] = 0;\n",
        "",
        "posted sums that stay",
    ),
    Mutation(
        "reduce/cuda/sum.cuh",
        "count / 2; distance",
        "count / 4; distance",
        "half of the lanes",
    ),
    Mutation(
        "reduce/cuda/sum.cuh",
        "scratch.put(warp, sum);\n  __syncthreads();",
        "scratch.put(warp, sum);",
        "a barrier",
    ),
    Mutation(
        "reduce/cuda/sum.cuh",
        "    words[1] += (words[0] - (sum - added)) + (value - added);\n",
        "    (void)added;\n",
        "what additions of doubles lose",
        dtypes=("float64",),
    ),
    Mutation(
        "reduce/cuda/grid_sum.cuh",
        "  synchronize_cluster();\n  if (blockIdx",
        "  if (blockIdx",
        "the barrier of a cluster",
    ),
    Mutation(
        "reduce/cuda/grid_sum.cuh",
        "(gridDim.x + memory.group - 1) / memory.group",
        "gridDim.x / memory.group",
        "the last group",
    ),
    Mutation(
        "reduce/cuda/grid_sum.cuh",
        "i < count; i += threads",
        "i + 1 < count; i += threads",
        "the last block's sum",
        implementations=("custom:two_pass",),
    ),
    Mutation(
        "elementwise/cuda/strategies.cuh",
        "min(each, count - first)",
        "each",
        "the last group's end",
        implementations=("custom:tree",),
    ),
    Mutation(
        "reduce/cuda/grid_sum.cuh",
        "    memory.total[w] = 0;\n",
        "",
        "a total that is not reset",
        implementations=("custom:atomic",),
    ),
    Mutation(
        "reduce/cuda/grid_sum.cuh",
        '"r"(count - 1)',
        '"r"(count)',
        "a counter that is not reset",
        implementations=("custom:atomic",),
    ),
    Mutation(
        "reduce/cuda/combine.h",
        "blocks <= kMostClusterBlocks &&",
        "blocks <= 2 * kMostClusterBlocks &&",
        "clusters that are too large",
    ),
    Mutation(
        "core/cuda/runtime.cu",
        "slab + i * kSlotBytes",
        "slab",
        "one slot for all streams",
        sizes=("173x1001",),
    ),
    Mutation(
        "core/cuda/runtime.cu",
        "  return lease(pool, memory, graph);\n}\n\nDeviceFacts",
        "  static void* const one = memory;\n  return lease(pool, one, graph);\n}\n\nDeviceFacts",
        "one slot for all graphs",
        sizes=("173x1001",),
    ),
)

OTHER_DERIVATIVES = (
    Mutation(
        "elementwise/cuda/shared_gradient.cuh",
        "step = arguments.policy.bands * height;",
        "step = 2 * arguments.policy.bands * height;",
        "half of an element's summands",
        losses=HINGE,
    ),
    Mutation(
        "elementwise/cuda/shared_gradient.cuh",
        "band < arguments.policy.bands",
        "band < 1",
        "all bands but one",
        losses=HINGE,
    ),
    Mutation(
        "elementwise/cuda/shared_gradient.cuh",
        "half = height / 2;",
        "half = height / 4;",
        "half of the threads that share an element",
        losses=HINGE,
    ),
    Mutation(
        "elementwise/cuda/shared_gradient.cuh",
        "first + u * step < arguments.policy.summands ? summand : Real(0)",
        "summand",
        "the first summand once more",
        losses=HINGE,
    ),
    Mutation(
        "elementwise/cuda/shared_gradient.cuh",
        "arguments.shared == n ?",
        "arguments.shared != n ?",
        "another operand's gradient",
        losses=HINGE,
    ),
    Mutation(
        "elementwise/cuda/shared_gradient.cuh",
        "at * arguments.strides[d][k]",
        "at * arguments.strides[first][k]",
        "the stride of another dimension",
    ),
    Mutation(
        "elementwise/cuda/second_derivatives.cuh",
        "along += vector[n]",
        "along = vector[n]",
        "the incoming gradient's derivative of the last operand alone",
    ),
    Mutation(
        "elementwise/cuda/second_derivatives.cuh",
        "if (i >= arguments.size)",
        "if (i + 1 >= arguments.size)",
        "the last second derivative",
    ),
)
