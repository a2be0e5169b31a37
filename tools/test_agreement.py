import sys

import pytest
import torch

from losscli.bench import limit
from losscli.errors import UnfitError
from tools import agreement
from tools.agreement import Pair


@pytest.mark.parametrize(
    ("ours", "theirs", "code"),
    [(205e-6, 200e-6, 0), (207e-6, 200e-6, 1), (193e-6, 200e-6, 1), (50e-6, 50e-6, 1)],
    ids=["close", "longer", "shorter", "too short to be asked"],
)
def test_timers_may_differ_by_three_percent(capsys, ours, theirs, code):
    assert agreement.report(iter([Pair("mse", 1e-3, 1e-3), Pair("hinge", ours, theirs)])) == code
    assert capsys.readouterr().out.count("APART") == code


def test_each_agreement_case_can_run():
    from losscli.cases.axes import DTYPES, PASSES
    from losscli.implementations import IMPLEMENTATIONS
    from losscli.losses import LOSSES

    assert len(set(agreement.CASES)) == 6
    for loss, dtype, pass_, implementation in agreement.CASES:
        assert loss in LOSSES
        assert dtype in DTYPES
        assert pass_ in PASSES
        assert implementation in IMPLEMENTATIONS


def no_probe(device):
    raise UnfitError("nothing is built for this.")


@pytest.mark.slow
def test_both_timers_are_given_the_same_call(monkeypatch):
    def do_bench(call, **settings):
        call()
        return 2.5

    monkeypatch.setattr(agreement, "CASES", (("mse", "float32", "forward_backward", "reference"),))
    monkeypatch.setattr(agreement, "SIZE", (8, 8))
    monkeypatch.setattr(agreement, "ROUNDS", 1)
    monkeypatch.setattr(limit.Limits.__init__, "__defaults__", (no_probe,))
    (pair,) = agreement.measure("cpu", do_bench)
    assert pair.name == "mse 8x8 float32 mean, forward_backward, reference"
    assert pair.losscli > 0
    assert pair.do_bench == pytest.approx(2.5e-3)


@pytest.mark.parametrize(("gpu", "what"), [(False, "GPU"), (True, "Triton")])
def test_agreement_without_gpu_or_triton_is_skipped(capsys, monkeypatch, gpu, what):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setitem(sys.modules, "triton.testing", None)
    assert agreement.main() == agreement.EXIT_UNFIT
    assert capsys.readouterr().out == f"skipped: there is no {what}\n"
