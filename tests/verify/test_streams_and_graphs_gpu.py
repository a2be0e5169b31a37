"""Implementations that are right when called alone, on the default stream."""

import pytest
import torch

from losscli.implementations import find_implementation
from losscli.losses import REDUCTIONS
from losscli.runs.records import FAIL, PASS, SKIPPED
from losscli.verify import runner
from losscli.verify.checks import CHECKS
from tests.machinery import MACHINERY
from tests.verify.judging import judge, reference

BOTH = ("streams", "graphs")
CYCLES = 2_000_000
"""A millisecond of a GPU."""


@pytest.fixture
def case(make_case):
    return make_case("mse", shape=(301, 1001), device="cuda:0", distribution="normal")


def results(case, function, checks=BOTH):
    return {r.check: r for r in judge(case, function, checks=checks)}


def launches_on_the_default_stream(case, input, target):
    with torch.cuda.stream(torch.cuda.default_stream()):
        return reference(case, input, target)


class Cached:
    """Keeps what it has computed for the addresses of its operands."""

    def __init__(self):
        self.known = {}

    def __call__(self, case, input, target):
        key = (input.data_ptr(), target.data_ptr())
        if key not in self.known:
            self.known[key] = reference(case, input.detach(), target.detach())
        value = reference(case, input, target)
        return value - value.detach() + self.known[key]


class SharedScratch:
    """Every launch leaves its sum in the same memory, and reads it from there a little later."""

    def __init__(self):
        self.scratch = torch.zeros((), device="cuda")

    def __call__(self, case, input, target):
        value = reference(case, input, target)
        self.scratch.copy_(value.detach())
        torch.cuda._sleep(CYCLES)
        return value - value.detach() + self.scratch


def waits_for_the_host(case, input, target):
    value = reference(case, input, target)
    assert float(value.detach()) >= 0
    return value


def test_gpu_checks_without_a_gpu_are_skipped_with_a_reason(make_case):
    implementation = find_implementation("reference")
    trials = [(implementation, CHECKS[name]) for name in BOTH]

    skipped = [r for job in runner.split(make_case("mse"), trials) for r in runner.run(job)]

    assert [(r.check, r.status) for r in skipped] == [(name, SKIPPED) for name in BOTH]
    assert skipped[0].reason == "the check streams runs only on a GPU"


@pytest.mark.gpu
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("loss", MACHINERY)
def test_pytorchs_own_formula_passes(make_case, loss, reduction):
    case = make_case(loss, device="cuda:0", reduction=reduction, distribution="normal")

    assert {r.status for r in results(case, reference).values()} == {PASS}


@pytest.mark.gpu
def test_a_launch_on_the_default_stream_is_failed(case):
    found = results(case, launches_on_the_default_stream, checks=["streams"])

    assert found["streams"].status == FAIL
    assert "on a side stream, " in found["streams"].reason


@pytest.mark.gpu
def test_result_cached_by_address_fails(case):
    found = results(case, Cached())

    assert found["graphs"].status == FAIL
    assert "new contents, loss: expected " in found["graphs"].reason


@pytest.mark.gpu
def test_scratch_memory_that_streams_share_is_failed(case):
    found = results(case, SharedScratch(), checks=["streams"])

    assert found["streams"].status == FAIL
    assert "two streams at once, launch " in found["streams"].reason


@pytest.mark.gpu
def test_call_that_cannot_be_captured_fails_alone_with_its_message(case):
    found = results(case, waits_for_the_host)

    assert found["streams"].status == PASS
    assert found["graphs"].status == FAIL
    assert found["graphs"].reason.startswith("in a graph capture: raised ")
    assert {r.status for r in results(case, reference).values()} == {PASS}


@pytest.mark.gpu
def test_checks_on_a_gpu_free_all_memory(case):
    results(case, reference)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()

    results(case, reference)

    assert torch.cuda.memory_allocated() == before
