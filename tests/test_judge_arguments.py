"""Which operand each argument of somebody's function is, and which loss a function means."""

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from losscli.errors import UsageError
from losscli.implementations.binding import binding
from losscli.implementations.definitions import NotJudgeableError
from losscli.implementations.sandbox.program import bound
from losscli.implementations.source import Source
from losscli.judge.against_loss import SIZES
from losscli.judge.batch import check_job
from losscli.judge.job import Job
from losscli.judge.loss_of_file import check_arguments, forms, loss_of
from losscli.losses import EVERY_LOSS, HIDDEN_STATE, LINEAR_LOSSES
from losscli.reasons import Code
from tests import handmade
from tests.parameters import naming


def file_of(source: str, name: str = "") -> Source:
    return Source("f.py", Path("f.py"), "", name, source.encode())


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
    "linear_cross_entropy": {
        "input, linear_weight, target": ("input", "linear_weight", "target"),
        "hidden, weight, labels": ("input", "linear_weight", "target"),
    },
    "biased_linear_cross_entropy": {
        "input, linear_weight, target, linear_bias": (
            *("input", "linear_weight", "target", "linear_bias"),
        )
    },
}


def test_operands_find_their_arguments_by_name_and_place() -> None:
    for loss, known in ORDERS.items():
        for signature, due in known.items():
            with naming(loss, signature):
                find_arguments(loss, signature, due)


def find_arguments(loss: str, signature: str, due: tuple[str, ...]) -> None:
    found = definition(signature, loss)
    names = EVERY_LOSS[loss].names

    check_arguments(file_of(""), found, loss, ())
    order = found.signature.order(names)
    assert order == due

    # Each argument gets its operand, as Python binds them.
    made: dict[str, Any] = {}
    arguments = [part.split("=")[0].strip("* ") for part in signature.split(",")]
    exec(f"def f({signature}): return dict(locals())", made)
    case = handmade.case(loss=loss, shape=(3, 4), target_shape=(3,), params={})
    module: Any = SimpleNamespace(f=made["f"])
    function: Any = bound(module, binding(file_of(f"def f({signature}): ...", "f"), case))
    given = function(*names)
    assert [given[name] for name in filter(None, arguments)][: len(order)] == [*order]
    assert {*names} <= {*given.values()}


MISFITS = {
    ("kl_divergence", "x"): "expected arguments for input and target, found x",
    ("kl_divergence", "x, y, z"): "found x, y, z. Write (input, target, ...)",
    ("kl_divergence", "x, y, *, other"): "found x, y, other",
    ("triplet_margin", "anchor, positive"): (
        "f takes no negative. The operands of triplet_margin are anchor, positive, negative"
    ),
    ("triplet_margin", "a, p, n"): (
        "the argument p of f is the positive, and triplet_margin has a setting of that name"
    ),
    ("masked_kl_divergence", "input, target"): "f takes no mask. The operands of",
}


def test_arguments_that_do_not_fit_are_named() -> None:
    for (loss, signature), message in MISFITS.items():
        with naming(loss, signature), pytest.raises(NotJudgeableError) as caught:
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


MEANT = {
    "kl_divergence(input, target, *, mask=None)": "kl_divergence",
    "kl_divergence(input, target, mask)": "masked_kl_divergence",
    "nll_loss(input, target)": "nll",
    "nll_loss(input, target, weight)": "weighted_nll",
    "cross_entropy(input, target)": "cross_entropy",
    "token_log_probs(logits, tokens, temperature=1.0)": "token_log_probs",
    "triplet_margin_loss(anchor, positive, negative)": "triplet_margin",
    "mse_loss(input, target)": "mse",
    "weighted_mse_loss(input, target, weight)": "weighted_mse",
    "linear_cross_entropy(input, linear_weight, target)": "linear_cross_entropy",
    "linear_cross_entropy(hidden, weight, labels)": "linear_cross_entropy",
    "linear_cross_entropy(input, linear_weight, target, linear_bias)": (
        "biased_linear_cross_entropy"
    ),
}


def test_loss_is_known_by_the_name_and_operands_of_its_function_or_by_a_compiled_module() -> None:
    for function, loss in MEANT.items():
        assert loss_of(file_of(f"def {function}: ...")) == loss, function
    assert loss_of(file_of("def smooth_l1(prediction, target, beta=1.0): ...")) == "smooth_l1"
    assert loss_of(file_of(f"{LOADED}{MODEL}")) == "smooth_l1"
    both = file_of("def nll_loss(input, target): ...\ndef mse_loss(input, target): ...")
    with pytest.raises(NotJudgeableError, match=r"defines several losses: (nll, mse|mse, nll)"):
        loss_of(both)


FORMS = {
    ("kl_divergence", "input, target, *, mask=None"): ["masked_kl_divergence"],
    ("kl_divergence", "input, target"): [],
    ("kl_divergence", "input, target, **others"): [],
    ("nll", "input, target, weight=None"): ["weighted_nll"],
    ("cross_entropy", "input, target, weight=None"): ["weighted_cross_entropy"],
    ("cross_entropy_with_probabilities", "input, target, weight=None"): [
        "weighted_cross_entropy_with_probabilities"
    ],
    ("weighted_nll", "input, target, weight"): [],
    ("mse", "input, target, weight=None"): [],
}


def test_loss_is_also_judged_with_the_operands_that_a_function_names() -> None:
    for (loss, signature), others in FORMS.items():
        assert forms(loss, definition(signature, loss)) == others, (loss, signature)


def test_reduction_that_the_loss_has_not_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "k.py"
    path.write_text("def token_log_probs(logits, tokens): ...")
    with pytest.raises(UsageError, match=r"unknown reduction 'mean'\. Choose from: none"):
        check_job(Job(file=str(path), loss="token_log_probs", reduction="mean"))


FORWARD = "    def forward(self, input, target): return helper(input, target)"
LOADED = "import torch.utils.cpp_extension as cpp\nsmooth_l1_loss = cpp.load_inline('x', '')\n"


MODEL = f"class ModelNew(Module):\n{FORWARD}"
DEFINES = "def smooth_l1_loss(x, y): ...\n"
NAMED = {
    f"{LOADED}{MODEL}": "ModelNew",
    f"{LOADED}l1_loss = smooth_l1_loss\n{MODEL}": "ModelNew",
    f"{LOADED}def fused_loss(input, target): ...": "fused_loss",
    f"{LOADED}def smooth_l1_loss(input, target): ...": "smooth_l1_loss",
    f"{DEFINES}smooth_l1_loss = torch.compile(smooth_l1_loss)": "smooth_l1_loss",
    f"{DEFINES}def helper(x, y): return smooth_l1_loss(x, y)\n{MODEL}": "ModelNew",
}


def test_a_compiled_module_is_no_loss_and_modelnew_wins_over_its_helpers() -> None:
    for source, meant in NAMED.items():
        assert file_of(source).definition("smooth_l1").name == meant, source


FORWARD_PAIR = "    def forward(self, input, target): ...\n"
OWN = {
    f"from other import nll_loss\nclass SoftLoss(Module):\n{FORWARD_PAIR}": "SoftLoss",
    "from other import fused_loss\ndef helper(a, b, c): ...": "fused_loss",
    "def my_loss(x, y): ...\ndef test_my_loss(): my_loss(1, 2)": "my_loss",
    "def my_loss(x, y): ...\ndef test_loss(): ...": "my_loss",
}


def test_a_file_means_its_own_loss_and_neither_an_import_nor_a_test() -> None:
    for source, meant in OWN.items():
        assert file_of(source).definition("cross_entropy").name == meant, source


def test_definitions_below_if_name_is_main_are_no_losses() -> None:
    source = f"{DEFINES}if __name__ == '__main__':\n    class Model(Module): ...\n"
    assert not file_of(source).defines("Model")


def test_a_reexported_function_keeps_its_signature(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "of_losses" / "losses"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").touch()
    (package / "__init__.py").write_text("from .focal import FocalLoss, _own as focal_loss\n")
    (package.parent / "every.py").write_text("from math import *\nfrom .losses import *\n")
    (package / "focal.py").write_text(
        "class FocalLoss(Module):\n"
        "    def __init__(self, gamma=2.0): ...\n"
        f"{FORWARD_PAIR}"
        "def _own(pred, target, alpha): ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))

    made = Source.find("of_losses.losses:FocalLoss").definition("")
    called = Source.find("of_losses.losses:focal_loss").definition("")
    far = Source.find("of_losses.every:FocalLoss").definition("")

    assert (made.name, made.kind, made.takes("gamma")) == ("FocalLoss", "module", True)
    assert far == made
    assert (called.name, called.signature.names) == ("focal_loss", ("pred", "target", "alpha"))


def test_a_name_behind_a_file_of_this_folder_is_a_name_in_that_file(tmp_path, monkeypatch):
    (tmp_path / "k.py").write_text("def fused(a, b, beta=1.0): ...")
    monkeypatch.chdir(tmp_path)
    found = Source.find("k.py:fused")
    assert (found.path.name, found.name, found.module) == ("k.py", "fused", "")


ONLY = {
    "def fused(a, b, beta=1.0): ...": "fused",
    "import math\n\ndef fused(a, b, beta=1.0): ...\n\ndef main(): ...": "fused",
    "def helper(a): ...\n\ndef fused(a, b, beta=1.0): ...": "",
    "class Distance(Module):\n    def forward(self, anchor, near, far): ...": "Distance",
    MODEL: "",
    "x = 1": "",
}


def test_the_only_definition_with_arguments_is_meant_whatever_its_name_is():
    for source, name in ONLY.items():
        with naming(source):
            assert file_of(source).of_only_definition().name == name


def test_an_ambiguous_file_is_refused_with_the_command_to_type():
    source = f"def smooth_l1_loss(input, target): ...\n{MODEL}"
    file = Source("my/f.py", Path("/somewhere/my/f.py"), "", "", source.encode())
    with pytest.raises(NotJudgeableError) as refused:
        file.definition("smooth_l1")
    assert refused.value.code == Code.AMBIGUOUS
    assert str(refused.value) == (
        "my/f.py: several could be meant: smooth_l1_loss, ModelNew. "
        "Name one, as in `losscli judge my/f.py:smooth_l1_loss`"
    )


def test_losses_of_hidden_states_are_judged_at_sizes_that_they_take() -> None:
    own = SIZES[HIDDEN_STATE]
    timed = itertools.chain(*own.timed.values())
    every = (own.small, *own.checked, own.timed_quickly, *timed)
    assert all(LINEAR_LOSSES["linear_cross_entropy"].takes(size) for size in every)


CALLED = """
import torch as t
SCALE: float = 2.0
def fused(a, b, *, beta=1.0, reduction="mean"): return t.square(a - b).mean(), None
def any_keyword(a, b, **others): return fused(a, b)
class Kernel:
    def __call__(self, a, b): return fused(a, b)
kernel = Kernel()
"""
CALLS = (
    *("fused(input, target, beta=beta)[0]", "any_keyword(input, target, eps=1)[0]", "kernel(1, 2)"),
    *("t.stack([fused(x, y)[0] for x, y in zip(input, target)]).mean()", "SCALE * input"),
    *("(lambda x: x)(fused(target, input, reduction=reduction)[0])", "Kernel()(input, target)"),
)
WRONG_CALLS = {
    "fussed(input, target)": "unknown name 'fussed'. Did you mean 'fused'? Choose from: input,",
    "fused(inptu, target)": "unknown name 'inptu'. Did you mean 'input'? Choose from: input,",
    "fused(log_probs, target)": "unknown name 'log_probs'. Choose from: input,",
    "fused(input, target, beta=betta)": "unknown name 'betta'. Did you mean 'beta'?",
    "fused(input, target": "is not a Python expression: '(' was never closed. Write one over",
}


def test_a_misspelt_name_in_a_call_is_a_usage_error_before_anything_runs(tmp_path, refused):
    path = tmp_path / "kernel.py"
    path.write_text(CALLED)
    for call in CALLS:
        for loss in ("smooth_l1", ""):
            check_job(Job(str(path), loss=loss, call=call))
    for call, message in WRONG_CALLS.items():
        refused(["judge", str(path), "--loss", "smooth_l1", "--call", call], message)


def test_a_name_is_not_unknown_where_a_file_may_define_it_in_another_way(tmp_path):
    path = tmp_path / "kernel.py"
    elsewhere = "import sys\nsys.modules[__name__].fussed = min"
    sources = ("from torch import *", "globals()['fussed'] = min", "def broken(:", elsewhere)
    for source in sources:
        path.write_text(source)
        check_job(Job(str(path), loss="smooth_l1", call="fussed(input, target)"))
