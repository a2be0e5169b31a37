"""The memory plan of a case against bytes computed by hand."""

from typing import Any

from losscli.implementations import IMPLEMENTATIONS, find_implementation
from losscli.runs.records import SKIPPED
from losscli.truth.blocks import BLOCK_ELEMENTS
from losscli.verify import runner
from losscli.verify.checks import CHECKS
from losscli.verify.memory_plan import Held, bytes_to_verify
from tests.parameters import naming

GIB = 2**30
BLOCKS = 16 * 8 * BLOCK_ELEMENTS
CUSTOM = [IMPLEMENTATIONS["custom"]]
LARGE = (32768, 32768)


def test_plans_of_large_cases(make_case):
    cases: list[Any] = [
        # The operands and both gradients; in forward the memory of the reference.
        ("mse", {}, "forward_backward", Held(), 16 * GIB),
        ("mse", {}, "forward", Held(), 16 * GIB),
        # Without a reduction the loss and its gradient come on top.
        ("mse", {"reduction": "none"}, "forward_backward", Held(), 24 * GIB),
        # A row of targets, its value and magnitude in float64; its gradient is not the most.
        ("hinge", {}, "forward_backward", Held(), 12 * GIB + 32768 * (4 + 8 + 8)),
        # Two inputs and three results with both gradients.
        ("mse", {}, "forward_backward", Held(operands=2, results=3), (4 + 6) * 4 * GIB),
    ]
    for loss, changes, pass_, held, due in cases:
        case = make_case(loss, shape=LARGE, **changes)
        with naming(loss, changes, pass_, held):
            assert bytes_to_verify(case, pass_, CUSTOM, held) == due + BLOCKS


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


def test_temporaries_count_once_a_stream(make_case):
    case = make_case("mse", shape=LARGE)
    reference = [IMPLEMENTATIONS["reference"]]

    one, two = (
        bytes_to_verify(case, "forward_backward", reference, Held(streams=streams))
        for streams in (1, 2)
    )

    assert two - one == case.spec.temporaries * 4 * GIB
