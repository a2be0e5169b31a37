"""Other ways of calling are compared with the bits of plain calls, or with the oracle."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

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
from tests.parameters import naming

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


ON_GPU = {"beside": False, "device": "cuda:0"}
JUDGED: dict[str, Any] = {
    "the same bits": (lambda answer: answer, {}, PASS),
    "another order of a sum": (next_loss, {}, WARN),
    "another order where an implementation has a fixed one": (
        next_loss,
        {"fixed_order": True},
        FAIL,
    ),
    "a sum that is wrong by the oracle": (lambda a: replace(a, loss=a.loss * 1.01), {}, FAIL),
    "other bits of a gradient's element": (next_gradient, {}, FAIL),
    "other bits of a loss's element": (next_loss, {"reduction": "none"}, FAIL),
    "another order where no other work runs": (next_loss, ON_GPU, FAIL),
    "a CPU, which any process may use": (next_loss, {"beside": False}, WARN),
    "a CPU and a fixed order": (next_loss, {"beside": False, "fixed_order": True}, FAIL),
}


def test_an_answer_is_judged_by_its_bits_or_by_the_oracle(judged):
    for name, (change, settings, status) in JUDGED.items():
        with naming(name):
            assert judged(change, **settings) == status
