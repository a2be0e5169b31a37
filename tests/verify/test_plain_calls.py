"""Other ways of calling are compared with the bits of plain calls, or with the oracle."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from msgspec import structs

from losscli.implementations import IMPLEMENTATIONS
from losscli.implementations.requests import Answer
from losscli.implementations.subject import bind
from losscli.runs.records import FAIL, PASS, WARN
from losscli.truth.problem import Problem
from losscli.verify.checks.check import Tally
from losscli.verify.checks.plain_calls import PlainCalls

REFERENCE = IMPLEMENTATIONS["reference"]


@pytest.fixture
def judged(make_case) -> Callable[..., str]:
    """Return a function that judges an answer of another way of calling."""

    def judge(
        change: Callable[[Answer], Answer],
        *,
        fixed_order: bool = False,
        beside: bool = True,
        device: str = "cpu",
        **changes,
    ) -> str:
        case = make_case("mse", (8, 24), **changes)
        problem = Problem.of(case)
        subject = bind(replace(REFERENCE, fixed_order=fixed_order), case)
        plain = PlainCalls.of(problem, subject, problem.usual)
        elsewhere = replace(problem, case=structs.replace(case, device=device))
        plain = replace(plain, problem=elsewhere)
        tally = Tally()
        plain.judge(change(plain.answer), "beside other work", tally, beside=beside)
        return tally.outcome.status

    return judge


def next_loss(answer: Answer) -> Answer:
    """Return the answer with a loss that is off by the last bit."""
    return replace(answer, loss=torch.nextafter(answer.loss, torch.full((), torch.inf)))


def next_gradient(answer: Answer) -> Answer:
    """Return the answer with one element of the gradient off by the last bit."""
    gradient = answer.gradients["input"].clone()
    gradient[3, 5] = torch.nextafter(gradient[3, 5], torch.full((), torch.inf))
    return replace(answer, gradients={**answer.gradients, "input": gradient})


def test_the_same_bits_pass(judged):
    assert judged(lambda answer: answer) == PASS


def test_different_order_of_a_sum_is_a_warning(judged):
    assert judged(next_loss) == WARN


def test_implementation_with_a_fixed_order_fails_for_another_order(judged):
    assert judged(next_loss, fixed_order=True) == FAIL


def test_sum_that_is_wrong_by_the_oracle_fails(judged):
    assert judged(lambda answer: replace(answer, loss=answer.loss * 1.01)) == FAIL


def test_different_bits_of_an_element_fail(judged):
    assert judged(next_gradient) == FAIL
    assert judged(next_loss, reduction="none") == FAIL


def test_nothing_explains_another_order_where_no_other_work_runs(judged):
    assert judged(next_loss, beside=False, device="cuda:0") == FAIL


def test_any_process_may_run_beside_a_sum_on_a_cpu(judged):
    assert judged(next_loss, beside=False) == WARN
    assert judged(next_loss, beside=False, fixed_order=True) == FAIL
