"""The memory plan of a case against bytes computed by hand."""

from __future__ import annotations

from losscli.implementations import IMPLEMENTATIONS, find_implementation
from losscli.runs.records import SKIPPED
from losscli.truth.blocks import BLOCK_ELEMENTS
from losscli.verify import runner
from losscli.verify.checks import CHECKS
from losscli.verify.memory_plan import Held, bytes_to_verify

GIB = 2**30
BLOCKS = 16 * 8 * BLOCK_ELEMENTS
CUSTOM = [IMPLEMENTATIONS["custom"]]
LARGE = (32768, 32768)


def test_mean_needs_the_operands_and_both_gradients(make_case):
    case = make_case("mse", shape=LARGE)

    assert bytes_to_verify(case, "forward_backward", CUSTOM) == 16 * GIB + BLOCKS


def test_forward_needs_the_memory_of_the_reference(make_case):
    case = make_case("mse", shape=LARGE)

    assert bytes_to_verify(case, "forward", CUSTOM) == 16 * GIB + BLOCKS


def test_without_a_reduction_the_loss_and_its_gradient_come_on_top(make_case):
    case = make_case("mse", shape=LARGE, reduction="none")

    assert bytes_to_verify(case, "forward_backward", CUSTOM) == 24 * GIB + BLOCKS


def test_a_broadcast_target_is_small_and_its_gradient_is_summed_in_float64(make_case):
    case = make_case("hinge", shape=LARGE)

    rows = 32768 * (4 + 8 + 8)  # the target, its value and magnitude; its gradient is not the most
    assert bytes_to_verify(case, "forward_backward", CUSTOM) == 12 * GIB + rows + BLOCKS


def test_temporaries_of_an_implementation_count(make_case):
    case = make_case("mse", shape=LARGE)
    reference = [IMPLEMENTATIONS["reference"]]

    more = bytes_to_verify(case, "forward_backward", reference) - bytes_to_verify(
        case, "forward_backward", CUSTOM
    )

    assert more == case.spec.temporaries * 4 * GIB


def test_a_small_case_takes_small_blocks(make_case):
    assert bytes_to_verify(make_case("mse", shape=(10,)), "forward", CUSTOM) < 4096


def test_one_pass_may_fit_where_the_other_does_not(make_case):
    """Without a reduction both gradients are too much here, and the value is still checked."""
    case = make_case("mse", shape=(100, 100), reduction="none")
    reference = find_implementation("reference")
    free = bytes_to_verify(case, "forward", [reference])
    trials = tuple((reference, CHECKS[name]) for name in ("value", "gradients", "determinism"))
    job = runner.Checks(case, trials)

    results = list(runner.run(job, lambda device: free))

    assert [(r.check, r.status == SKIPPED) for r in results] == [
        ("value", False),
        ("gradients", True),
        ("determinism", True),
    ]


def test_check_that_holds_more_results_needs_more_memory(make_case):
    """Two inputs and three results with both gradients, beside the blocks."""
    case = make_case("mse", shape=LARGE)

    held = Held(operands=2, results=3)

    assert bytes_to_verify(case, "forward_backward", CUSTOM, held) == (4 + 6) * 4 * GIB + BLOCKS


def test_temporaries_count_once_a_stream(make_case):
    case = make_case("mse", shape=LARGE)
    reference = [IMPLEMENTATIONS["reference"]]

    one, two = (
        bytes_to_verify(case, "forward_backward", reference, Held(streams=streams))
        for streams in (1, 2)
    )

    assert two - one == case.spec.temporaries * 4 * GIB
