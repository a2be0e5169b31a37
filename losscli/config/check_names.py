"""The checks of ``losscli verify``: names and what they catch, for whoever imports no torch."""

CATCHES = {
    "value": "the loss against the oracle",
    "gradients": "the gradients of all operands against the oracle",
    "coverage": "elements that are not read, or read in place of others; gradients of other "
    "elements",
    "branches": "a branch of the loss that the inputs of a case hardly reach, and its kinks",
    "layouts": "kernels that assume contiguous or aligned operands, a wrong axis of a broadcast",
    "sizes": "tails, single elements and empty tensors",
    "row_values": "exponentials that overflow, masked and ignored rows, ties",
    "row_lengths": "tails of rows, single classes, single rows, no rows",
    "row_layouts": "kernels that assume classes side by side, dimensions behind the classes",
    "row_relations": "what the reference gets wrong as well: shifted logits, classes in another "
    "order, sums of gradients that are not zero",
    "row_bulk": "gradients of rows larger than the caches that are not fully written",
    "linear_values": "logits of hidden states that overflow, ignored tokens, ties",
    "linear_sizes": "tails of tokens, widths and classes; one of each, no tokens",
    "linear_layouts": "hidden states and weights that are not contiguous, dimensions of tokens",
    "linear_plans": "logits made in chunks or slices that do not add up, more memory than a budget",
    "wrong_targets": "class numbers that are no class and raise no error",
    "broadcasts": "rows and columns that repeat, at sizes at which kernels switch code paths",
    "bulk": "results larger than the caches that are not fully written",
    "rounding": "16-bit results that are truncated, not rounded",
    "exact": "results that are off where no rounding is needed",
    "float64_sums": "sums of float64 that lose digits",
    "specials": "NaN, infinities, subnormals, squares out of range",
    "parts": "incoming gradients that differ by row, and batches in parts",
    "retained": "a second backward pass through a retained graph",
    "accumulation": "gradients that are not added to an existing .grad",
    "steps": "a gradient that was computed for the incoming gradient of another call",
    "changed_operands": "operands that get other memory between forward and backward",
    "numeric": "a gradient that is not that of the loss, by differences in float64",
    "second_derivatives": "second derivatives that are zero or wrong",
    "remembered": "answers of earlier calls, found again by address, by elements or by a checksum; "
    "results that a later call overwrites",
    "memory": "overwritten operands, reads beyond their ends, results not fully written or shared",
    "left_behind": "flags, random states and functions that a call changes for later code",
    "allocations": "copies of operands, temporaries of full size",
    "determinism": "results that change from run to run",
    "streams": "launches on the wrong stream, scratch memory shared between streams",
    "graphs": "calls that cannot be captured, results that a replay does not renew",
    "captured_backward": "work that a captured backward pass leaves out of its replays",
}
"""What each check catches, in a line; they run in this order. The check is the function of its name
in ``losscli/verify/checks``."""
