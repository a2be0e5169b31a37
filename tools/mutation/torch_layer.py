"""Mistakes in the operators and in autograd, which both devices use."""

from __future__ import annotations

from .mutation import Mutation

TORCH = (
    Mutation(
        "torch/compute.cpp",
        "1.0 / static_cast<double>(size)",
        "1.0 / static_cast<double>(size + 1)",
        "N",
    ),
    Mutation(
        "torch/layout.cpp",
        "merges = strides[k][d] == operands[k].strides[last] * space.sizes[last];",
        "merges = strides[k][d] >= operands[k].strides[last] * space.sizes[last];",
        "dimensions that are not one are made one",
    ),
    Mutation(
        "torch/layout.cpp",
        "*kept = space.dimensions;",
        "*kept = space.dimensions > 0;",
        "the own dimensions of a shared operand",
    ),
    Mutation(
        "torch/nodes.cpp",
        "  seen_.check_shapes(*call.loss, operands);\n",
        "",
        "shapes are not compared in backward",
        unseen="tests/kernels/test_changed_operands.py finds it",
    ),
    Mutation(
        "torch/ahead.cpp",
        "operands[k].strides() != at::IntArrayRef(seen.strides)",
        "false",
        "strides are not compared in backward",
        unseen="tests/kernels/test_changed_operands.py finds it",
    ),
    Mutation(
        "torch/nodes.cpp",
        "if (!torch::autograd::get_current_graph_task_keep_graph()) {",
        "{",
        "a retained graph returns the gradient that forward computed",
        equivalent="it is returned once, and the next backward pass computes its own",
    ),
)

CAPTURED = (
    Mutation(
        "torch/ahead.cpp",
        "if (taken_capture_ == 0) return;",
        "return;",
        "a captured backward hands the same gradient out again",
    ),
)
