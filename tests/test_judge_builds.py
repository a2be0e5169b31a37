import itertools

import pytest
from torch.overrides import TorchFunctionMode

from losscli.bench.plan import libraries_of, plan
from losscli.config.schema import Config, LossChoice
from losscli.implementations import CUSTOM, libraries
from losscli.implementations.builtin import of_file
from losscli.implementations.source import Source
from losscli.judge.recognition import Recognised, UnknownLossError, recognise
from losscli.losses import EVERY_LOSS, HIDDEN_STATE, LOSSES
from losscli.operators import loading
from losscli.truth.problem import Problem
from losscli.truth.setup import ThirdParty
from tests.handmade import case_of
from tests.parameters import naming

MODEL = """
from torch import nn
from losscli.losses import EVERY_LOSS

class Model(nn.Module):
    def forward(self, {names}):
        spec = EVERY_LOSS["{loss}"]
        return spec.reference({names}, reduction="mean", **spec.resolve({{}}))
"""
SAME = {"smooth_l1": "huber", "quantiles": "quantile"}
"""Losses that are another one with the parameters that each has by default."""
MORE_OPERANDS = {"binary_cross_entropy_with_pos_weight", "gaussian_nll", "policy"}
AT_INFINITY = {"binary_cross_entropy", "kl_div"}
"""Losses that are not recognised, for their gradients are infinite at the ends of the domain."""


class NoKernels(TorchFunctionMode):
    """Lets no operator of losscli's be called."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if str(func).startswith("losscli"):
            pytest.fail(f"{func} was called")
        return func(*args, **(kwargs or {}))


@pytest.fixture
def no_kernels(monkeypatch):
    def refuse(targets):
        pytest.fail(f"{[each.name for each in targets]} would be built")

    monkeypatch.setattr(loading, "_obtain", refuse)
    with NoKernels():
        yield


@pytest.mark.usefixtures("no_kernels")
def test_a_model_is_recognised_without_a_build(tmp_path):
    for loss, spec in LOSSES.items():
        path = tmp_path / f"{loss}.py"
        path.write_text(MODEL.format(loss=loss, names=", ".join(spec.names)))
        with naming(loss):
            try:
                found = recognise(of_file(Source.read(f"{path}:Model")), "cpu")
            except UnknownLossError:
                assert loss in MORE_OPERANDS | AT_INFINITY
            else:
                assert found == Recognised(SAME.get(loss, loss), "mean", None, "float32")


@pytest.mark.usefixtures("no_kernels")
def test_oracle_and_formulas_need_no_build():
    for (loss, spec), dtype in itertools.product(EVERY_LOSS.items(), ("float32", "float16")):
        shape = (5, 3, 7) if spec.unit == HIDDEN_STATE else (5, 7)
        settings = {"reduction": spec.reductions[0], "distribution": "normal", "seed": 1}
        case = case_of(loss, shape, dtype=dtype, **settings)
        with naming(loss, dtype):
            problem = Problem.of(case, third_party=ThirdParty())
            assert list(problem.value())
            assert all(list(problem.gradient(name, problem.usual)) for name in problem.wrt)
            assert list(problem.formulas_losses())
            assert list(problem._torchs_answers(problem.usual))


def test_only_losscli_s_own_implementations_need_libraries():
    for other, needed in (("functional", []), (CUSTOM, ["torch", "mse_cpu"])):
        names = ("reference", other)
        config = Config(losses=(LossChoice("mse"),), sizes=((8, 8),), implementations=names)
        (task, *_) = tasks = plan(config, "cpu")
        found = libraries(((task.case, name) for name in names), "cpu")
        assert [each.name for each in found] == needed
        probed = [each.name for each in libraries_of(tasks, "cpu")]
        assert probed == ["torch", *needed[1:], "bench_cpu"]
