"""Which operand each argument of somebody's function is, and which loss a function means."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from losscli.errors import UsageError
from losscli.implementations.definitions import NotJudgeableError
from losscli.implementations.files import UserFile
from losscli.implementations.loading import binding
from losscli.implementations.sandbox.program import bound
from losscli.judge.against_loss import check_arguments, forms, loss_of
from losscli.judge.job import Job
from losscli.judge.jobs import check_job
from losscli.losses import EVERY_LOSS
from losscli.reasons import Code
from tests import handmade


def file_of(source: str, name: str = "") -> UserFile:
    return UserFile("f.py", Path("f.py"), "", name, source, "")


def definition(signature: str, loss: str) -> Any:
    return file_of(f"def f({signature}): ...", "f").definition(loss)


ORDERS: dict[str, dict[str, tuple[str, ...]]] = {
    "kl_divergence": {
        "input, target, temperature=1.0, reduction='mean', *, mask=None": ("input", "target"),
        "target, input": ("target", "input"),
        "y_true, y_pred": ("target", "input"),
        "student, teacher": ("input", "target"),
        "y, t": ("input", "target"),
        "x, y, t=1.0": ("input", "target"),
    },
    "cosine_similarity": {"x, y": ("x1", "x2"), "x2, x1": ("x2", "x1"), "a, b": ("x1", "x2")},
    "cosine_embedding": {
        "x1, x2, y, margin=0.0": ("input1", "input2", "target"),
        "input1, input2, target": ("input1", "input2", "target"),
        "target, input1, input2": ("target", "input1", "input2"),
    },
    "triplet_margin": {
        "a, b, c, margin=1.0": ("anchor", "positive", "negative"),
        "negative, anchor, positive": ("negative", "anchor", "positive"),
        "anchor, positive, *, negative": ("anchor", "positive"),
    },
    "token_log_probs": {"logits, tokens": ("logits", "tokens"), "x, y": ("logits", "tokens")},
    "weighted_nll": {
        "input, target, weight": ("input", "target", "weight"),
        "input, target, *, weight=None": ("input", "target"),
        "weight, log_probs, labels": ("weight", "input", "target"),
    },
}


@pytest.mark.parametrize(
    ("loss", "signature"), [(loss, each) for loss, known in ORDERS.items() for each in known]
)
def test_operands_find_their_arguments_by_name_and_place(loss: str, signature: str) -> None:
    found = definition(signature, loss)
    names = EVERY_LOSS[loss].names

    order = found.signature.order(names)
    assert order == ORDERS[loss][signature]
    assert found.signature.lacks(names) == ""

    # Each argument gets its operand, as Python binds them.
    made: dict[str, Any] = {}
    arguments = [part.split("=")[0].strip("* ") for part in signature.split(",")]
    exec(f"def f({signature}): return dict(locals())", made)
    case = handmade.case(loss=loss, shape=(3, 4), target_shape=(3,), params={})
    module: Any = SimpleNamespace(f=made["f"])
    function: Any = bound(module, binding(found, order, case))
    given = function(*names)
    assert [given[name] for name in filter(None, arguments)][: len(order)] == [*order]
    assert {*names} <= {*given.values()}


@pytest.mark.parametrize(
    ("loss", "signature", "message"),
    [
        ("kl_divergence", "x", "expected arguments for input and target, found x"),
        ("kl_divergence", "x, y, z", "found x, y, z. Write (input, target, ...)"),
        ("kl_divergence", "x, y, *, other", "found x, y, other"),
        (
            "triplet_margin",
            "anchor, positive",
            "f takes no negative. The operands of triplet_margin are anchor, positive, negative",
        ),
        (
            "triplet_margin",
            "a, p, n",
            "the argument p of f is the positive, and triplet_margin has a setting of that name",
        ),
        ("masked_kl_divergence", "input, target", "f takes no mask. The operands of"),
    ],
)
def test_arguments_that_do_not_fit_are_named(loss: str, signature: str, message: str) -> None:
    with pytest.raises(NotJudgeableError) as caught:
        check_arguments(file_of(""), definition(signature, loss), loss, ())
    assert message in str(caught.value)
    assert caught.value.code == Code.SIGNATURE


def test_order_that_the_user_says_names_operands() -> None:
    found = definition("a, b", "cosine_similarity")
    names = EVERY_LOSS["cosine_similarity"].names
    assert found.signature.order(names, ("x2", "x1")) == ("x2", "x1")
    assert found.signature.order(names, ("target", "input")) == ("x2", "x1")
    with pytest.raises(NotJudgeableError, match="expected an order of x1, x2, given left, right"):
        found.signature.order(names, ("left", "right"))


@pytest.mark.parametrize(
    ("source", "loss"),
    [
        ("def kl_divergence(input, target, *, mask=None): ...", "kl_divergence"),
        ("def kl_divergence(input, target, mask): ...", "masked_kl_divergence"),
        ("def nll_loss(input, target): ...", "nll"),
        ("def nll_loss(input, target, weight): ...", "weighted_nll"),
        ("def cross_entropy(input, target): ...", "cross_entropy"),
        ("def token_log_probs(logits, tokens, temperature=1.0): ...", "token_log_probs"),
        ("def triplet_margin_loss(anchor, positive, negative): ...", "triplet_margin"),
        ("def mse_loss(input, target): ...", "mse"),
        ("def weighted_mse_loss(input, target, weight): ...", "weighted_mse"),
    ],
)
def test_function_says_its_loss_by_its_name_and_operands(source: str, loss: str) -> None:
    assert loss_of(file_of(source)) == loss


def test_several_losses_in_a_file_are_named() -> None:
    both = file_of("def nll_loss(input, target): ...\ndef mse_loss(input, target): ...")
    with pytest.raises(NotJudgeableError, match=r"defines several losses: (nll, mse|mse, nll)"):
        loss_of(both)


@pytest.mark.parametrize(
    ("loss", "signature", "others"),
    [
        ("kl_divergence", "input, target, *, mask=None", ["masked_kl_divergence"]),
        ("kl_divergence", "input, target", []),
        ("kl_divergence", "input, target, **others", []),
        ("nll", "input, target, weight=None", ["weighted_nll"]),
        ("cross_entropy", "input, target, weight=None", ["weighted_cross_entropy"]),
        (
            "cross_entropy_with_probabilities",
            "input, target, weight=None",
            ["weighted_cross_entropy_with_probabilities"],
        ),
        ("weighted_nll", "input, target, weight", []),
        ("mse", "input, target, weight=None", []),
    ],
)
def test_loss_is_also_judged_with_the_operands_that_a_function_names(
    loss: str, signature: str, others: list[str]
) -> None:
    assert forms(loss, definition(signature, loss)) == others


def test_reduction_that_the_loss_has_not_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "k.py"
    path.write_text("def token_log_probs(logits, tokens): ...")
    with pytest.raises(UsageError, match=r"unknown reduction 'mean'\. Choose from: none"):
        check_job(Job(file=str(path), loss="token_log_probs", reduction="mean"))


FORWARD = "    def forward(self, input, target): return helper(input, target)"
LOADED = "import torch.utils.cpp_extension as cpp\nsmooth_l1_loss = cpp.load_inline('x', '')\n"


@pytest.mark.parametrize(
    ("source", "meant"),
    [
        (f"{LOADED}class ModelNew(Module):\n{FORWARD}", "ModelNew"),
        (f"{LOADED}l1_loss = smooth_l1_loss\nclass ModelNew(Module):\n{FORWARD}", "ModelNew"),
        (f"{LOADED}def fused_loss(input, target): ...", "fused_loss"),
        (f"{LOADED}def smooth_l1_loss(input, target): ...", "smooth_l1_loss"),
        (
            "def smooth_l1_loss(x, y): ...\nsmooth_l1_loss = torch.compile(smooth_l1_loss)",
            "smooth_l1_loss",
        ),
        (
            f"def smooth_l1_loss(x, y): ...\ndef helper(x, y): return smooth_l1_loss(x, y)\n"
            f"class ModelNew(Module):\n{FORWARD}",
            "ModelNew",
        ),
    ],
    ids=["compiled", "renamed", "beside a function", "replaced", "a function", "a helper's helper"],
)
def test_a_compiled_module_is_no_loss_and_modelnew_wins_over_its_helpers(source, meant):
    assert file_of(source).definition("smooth_l1").name == meant


def test_an_ambiguous_file_is_refused_with_the_command_to_type():
    source = f"def smooth_l1_loss(input, target): ...\nclass ModelNew(Module):\n{FORWARD}"
    file = UserFile("my/f.py", Path("/somewhere/my/f.py"), "", "", source, "")
    with pytest.raises(NotJudgeableError) as refused:
        file.definition("smooth_l1")
    assert refused.value.code == Code.AMBIGUOUS
    assert str(refused.value) == (
        "my/f.py: several could be meant: smooth_l1_loss, ModelNew. "
        "Name one, as in `losscli judge my/f.py:smooth_l1_loss`"
    )


def test_the_name_of_a_compiled_module_tells_the_loss():
    assert loss_of(file_of(f"{LOADED}class ModelNew(Module):\n{FORWARD}")) == "smooth_l1"
