from __future__ import annotations

from collections.abc import Callable

import pytest

from losscli.cases import Case
from losscli.losses import LOSSES
from losscli.results import PASS, Error, Run, VerifyResult

MACHINE = {"device": "cpu", "cpu": "a CPU", "threads": 2, "torch": "2"}

MakeCase = Callable[..., Case]


@pytest.fixture(scope="session")
def make_case() -> MakeCase:
    """Make a small float32 mean on the CPU; keywords change what a test is about."""

    def make(
        loss: str = "smooth_l1", shape: tuple[int, ...] = (37, 101), **changes: object
    ) -> Case:
        spec = LOSSES[loss]
        fields: dict[str, object] = {
            "target_shape": spec.default_target_shape(shape),
            "dtype": "float32",
            "reduction": "mean",
            "device": "cpu",
            "params": {},
            "distribution": "uniform",
            "seed": 0,
        }
        fields |= changes
        fields["params"] = spec.resolve(fields["params"])
        return Case(loss=loss, shape=shape, **fields)

    return make


@pytest.fixture
def make_run(make_case):
    def make(*results):
        return Run("verify", ("losscli", "verify"), "2026-01-01", MACHINE, results)

    return make


@pytest.fixture
def case_results(make_case):
    """The three checks of one case; keywords change the case."""

    def make(
        loss="smooth_l1", implementation="custom", status=PASS, reason="", tolerance="", **changes
    ):
        case = make_case(loss, **changes)
        value = Error(value_abs=1e-7, value_rel=2.94e-8, value_ulp=0.5)
        reference = Error(value_rel=1e-7, value_ulp=1.25)
        return [
            VerifyResult(
                case, implementation, "value", status, reason, value, reference, tolerance
            ),
            VerifyResult(case, implementation, "input_gradient", PASS, error=Error(grad_ulp=0.75)),
            VerifyResult(case, implementation, "target_gradient", PASS, error=Error(grad_ulp=2.0)),
        ]

    return make
