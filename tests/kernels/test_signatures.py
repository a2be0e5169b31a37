import inspect
import pickle
from typing import Any

import pytest
import torch

from losscli import functional, nn
from losscli.losses import LOSSES

TORCH: Any = torch.nn.functional
FUNCTIONS = [spec.loss.__name__ for spec in LOSSES.values() if hasattr(TORCH, spec.loss.__name__)]
MODULES = [
    spec.module.__name__ for spec in LOSSES.values() if hasattr(torch.nn, spec.module.__name__)
]
LATER = ("weight",)
"""What a newer torch takes, or none does: last, so that no position changes."""


def parameters(callable: Any) -> dict[str, Any]:
    given = inspect.signature(callable).parameters
    return {name: parameter.default for name, parameter in given.items()}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_has_the_signature_of_torchs(name):
    own, torchs = parameters(getattr(functional, name)), parameters(getattr(TORCH, name))

    added = [each for each in own if each not in torchs]
    assert list(own.items())[: len(torchs)] == list(torchs.items())
    assert not added or (tuple(added) == LATER and list(own)[-1:] == added)


@pytest.mark.parametrize("name", MODULES)
def test_module_has_the_signature_of_torchs(name):
    assert parameters(getattr(nn, name)) == parameters(getattr(torch.nn, name))


@pytest.mark.parametrize("spec", LOSSES.values(), ids=list(LOSSES))
def test_with_grad_takes_the_same_and_the_incoming_gradient(spec):
    both, own = parameters(spec.loss_with_grad), parameters(spec.loss)
    assert both.pop("grad_output") == 1.0
    assert both == own
    for function in (spec.loss, spec.loss_with_grad):
        assert pickle.loads(pickle.dumps(function)) is function


@pytest.mark.parametrize(
    ("size_average", "reduce"),
    [(True, None), (False, None), (None, True), (None, False), (False, False), (True, True)],
)
def test_deprecated_arguments_choose_the_reduction_that_they_choose_in_torch(size_average, reduce):
    x, y = torch.randn(2, 5)
    with pytest.warns(UserWarning, match="please use reduction"):
        due = TORCH.mse_loss(x, y, size_average, reduce)
    with pytest.warns(UserWarning, match="size_average and reduce are deprecated: use reduction="):
        got = functional.mse_loss(x, y, size_average, reduce)
    with pytest.warns(UserWarning, match="are deprecated"):
        of_module = nn.MSELoss(size_average, reduce)(x, y)

    torch.testing.assert_close(got, due)
    torch.testing.assert_close(of_module, due)


@pytest.mark.parametrize("name", ["mse_loss", "smooth_l1_loss"])
def test_broadcast_target_is_warned_of_where_torch_warns(name):
    x, y = torch.randn(4, 5), torch.randn(5)
    for library in (TORCH, functional):
        with pytest.warns(UserWarning, match="Using a target size") as found:
            getattr(library, name)(x, y)
        assert [warning.filename for warning in found] == [__file__]
