"""Mistakes in the CPU's loops and in the binding, which both devices go through."""

from __future__ import annotations

from .mutation import Mutation

CPU = (
    Mutation(
        "cpu/instantiate.cpp", "whole < tile.count ?", "whole + 1 < tile.count ?", "a tail of one"
    ),
    Mutation(
        "cpu/instantiate.cpp",
        "lane = tile.count; lane < kLanes",
        "lane = kLanes; lane < kLanes",
        "padding counts",
        losses=("hinge",),
    ),
    Mutation(
        "cpu/instantiate.cpp",
        "kOutput ? scale * g[lane] : scale",
        "kOutput ? g[lane] : scale",
        "the scale of a tensor of incoming gradients",
        equivalent="without a reduction the scale is 1, and with one there is no such tensor",
    ),
    Mutation(
        "cpu/instantiate.cpp",
        "stream<kBytes>(lanes, to);",
        "stream<kBytes / 2>(lanes, to);",
        "half of what goes past the caches",
    ),
    Mutation(
        "cpu/instantiate.cpp",
        "std::copy_n(grad_target, count, tile.grad_target + first)",
        "std::copy_n(grad_target, count - 1, tile.grad_target + first)",
        "the last gradient of a tail is not written",
    ),
    Mutation(
        "cpu/instantiate.cpp",
        "std::copy_n(value, count, tile.value + first)",
        "std::copy_n(value, count + 1, tile.value + first)",
        "a value beyond the end is written",
        unseen="an implementation allocates its results itself, without bands around them to look "
        "at",
    ),
    Mutation(
        "cpu/instantiate.cpp",
        "tile.grad_target[i] =\n        factor *",
        "tile.grad_target[i] =\n        tile.scale *",
        "second derivatives without the incoming gradient",
    ),
    Mutation(
        "cpu/engine.cpp",
        "std::min(begin + kChunk, arguments.size)",
        "begin + kChunk - kTile",
        "the last tile of a chunk",
    ),
    Mutation(
        "cpu/engine.cpp",
        "const int64_t begin = chunk * kChunk,",
        "const int64_t begin = static_cast<int>(chunk * kChunk),",
        "int for int64",
        losses=("hinge",),
        dtypes=("bfloat16",),
        sizes=("65536x32800",),
        checks=("value",),
    ),
    Mutation(
        "cpu/engine.cpp",
        "const int64_t count = std::min(kTile, end - first);",
        "const int64_t count = kTile;",
        "a ragged tile is taken for a whole one",
    ),
    Mutation(
        "cpu/engine.cpp",
        "if (arguments.skip_unit_gradient && factor == 1.0) return;",
        "if (arguments.skip_unit_gradient) return;",
        "an incoming gradient other than 1",
    ),
    Mutation(
        "cpu/engine.cpp",
        "static_cast<Real>(arguments.scale * factor)",
        "static_cast<Real>(factor)",
        "1/N of the gradient",
    ),
    Mutation(
        "cpu/engine.cpp",
        "shared.inner - within % shared.inner",
        "shared.inner",
        "where a run of a shared element begins",
    ),
    Mutation(
        "cpu/engine.cpp",
        "if (++element == shared.period) element = 0;",
        "++element;",
        "a shared element's wrap",
        losses=("hinge",),
    ),
    Mutation(
        "cpu/engine.cpp",
        "slice / widths * band;",
        "slice / widths;",
        "the rows of a band",
        losses=("hinge",),
    ),
    Mutation(
        "cpu/engine.cpp",
        "b < bands; ++b",
        "b + 1 < bands; ++b",
        "the last band of a shared gradient",
        losses=("hinge",),
    ),
    Mutation("cpu/reader.h", "within = 0;", "", "how far into an element's repeats a tile begins"),
    Mutation(
        "cpu/reader.h",
        "if (period_ <= kTile) {",
        "if (period_ <= 2 * kTile) {",
        "a buffer too small for what repeats",
        losses=("hinge",),
    ),
    Mutation(
        "cpu/reader.h",
        "std::min(period_ - element, count)",
        "count",
        "a row's end within a tile",
        losses=("hinge",),
    ),
    Mutation(
        "cpu/chunk_sums.h",
        "chunk < chunks_; ++chunk",
        "chunk + 1 < chunks_; ++chunk",
        "the last chunk",
    ),
    Mutation(
        "cpu/chunk_sums.h",
        "std::min(kGroup, count - first)",
        "kGroup",
        "the last group of a tree",
        implementations=("custom:tree",),
    ),
    Mutation("cpu/lanes.h", "width > 0; width /= 2", "width > 1; width /= 2", "half of the lanes"),
    Mutation(
        "cpu/convert.h",
        "_mm256_set1_epi32(0x7fff)",
        "_mm256_setzero_si256()",
        "bfloat16 cut off, not rounded",
        dtypes=("bfloat16",),
    ),
    Mutation(
        "cpu/convert.h",
        "half = 0x7e00u;",
        "half = 0x7c00u;",
        "NaN becomes infinity in float16",
        dtypes=("float16",),
    ),
    Mutation(
        "binding/kernels.cpp",
        "1.0 / static_cast<double>(size)",
        "1.0 / static_cast<double>(size + 1)",
        "N",
    ),
    Mutation(
        "binding/kernels.cpp",
        "if (want_target && !full_target)",
        "if (want_target && want_input && !full_target)",
        "the gradient of a broadcast target where nobody asks for the input's",
        losses=("hinge",),
    ),
    Mutation("binding/layout.cpp", "strides[d] != form.period", "false", "strides are believed"),
    Mutation(
        "binding/layout.cpp",
        "form.inner *= shape_[d];",
        "form.inner = shape_[d];",
        "several repeated dimensions",
    ),
    Mutation(
        "binding/nodes.h",
        "    if (!torch::autograd::get_current_graph_task_keep_graph()) {\n"
        "      const LossAndGradients ready = std::exchange(written, {});",
        "    {\n      const LossAndGradients ready = written;",
        "a retained graph hands the same gradient out again",
    ),
)
