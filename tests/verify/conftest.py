import pytest

from losscli.runs.records import PASS, Error, Run, VerifyResult

MACHINE = {"device": "cpu", "cpu": "a CPU", "threads": 2, "torch": "2"}


@pytest.fixture
def make_run(make_case):
    def make(*results):
        return Run(kind="verify", environment=MACHINE, results=results)

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
                case,
                implementation,
                "value",
                status,
                reason,
                error=value,
                reference_error=reference,
                tolerance=tolerance,
            ),
            VerifyResult(case, implementation, "input_gradient", PASS, error=Error(grad_ulp=0.75)),
            VerifyResult(case, implementation, "target_gradient", PASS, error=Error(grad_ulp=2.0)),
        ]

    return make
