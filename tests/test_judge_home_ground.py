"""The home ground of a file: the shapes of operands for which it is written."""

import pytest

from losscli.config.expansion import expand
from losscli.config.schema import Config, LossChoice
from losscli.implementations.implementation import Implementation, Setting
from losscli.judge import against_loss
from losscli.reasons import Code
from losscli.runs.records import VerifyResult
from losscli.verify.checks import CHECKS
from losscli.verify.repeating import line
from tests.handmade import case_of

BY_NUMEL = """
import ctypes
import torch

def hinge_loss(predictions, targets):
    count, targets = predictions.numel(), targets.contiguous()
    if targets.numel() < count:
        IF_SHORT
    start = targets.storage_offset()
    room = targets.untyped_storage().nbytes() // targets.element_size() - start
    read = targets.as_strided((min(count, room),), (1,), start)
    read = torch.cat([read, torch.zeros(count - len(read), dtype=read.dtype)])
    return RESULT
"""
"""Reads as many targets as predictions, as a kernel with raw pointers does: zeros follow its
memory."""
MEAN = "torch.clamp(1 - predictions.flatten() * read, min=0).mean()"
IF_SHORT = {
    "reads beyond its target": ("pass", "RIGHT WITHIN LIMITS", "limited: ", "expected "),
    "crashes": ("ctypes.string_at(0)", "RIGHT WITHIN LIMITS", "limited: ", "its process ended"),
    "raises": ("raise ValueError('two shapes')", "RIGHT", "raises: ", "raised ValueError: two"),
}
"""What it does with fewer targets; the verdict, and the start and the end of its facet."""
SHAPES = "its target must have the input's shape; with shape 65: "


@pytest.fixture
def few_checks(monkeypatch):
    monkeypatch.setattr(against_loss, "QUICK_CHECKS", ("layouts", "broadcasts", "memory"))


def source(if_short, result=MEAN):
    return BY_NUMEL.replace("IF_SHORT", if_short).replace("RESULT", result)


@pytest.mark.parametrize("how", IF_SHORT)
def test_a_file_that_needs_a_target_of_the_inputs_shape_is_judged_on_such_targets(
    judged, few_checks, how
):
    if_short, word, kind, why = IF_SHORT[how]
    verdict = judged(source(if_short))
    assert verdict.word == word, verdict.reasons
    assert verdict.facets["layouts"].startswith(f"{kind}{SHAPES}{why}")
    assert {verdict.facets[facet] for facet in ("value", "gradient", "memory")} == {"ok"}
    assert not any("it is called with" in note for note in verdict.notes)


@pytest.mark.parametrize(
    ("result", "word"),
    [
        (f"{MEAN}.detach()", "RIGHT BUT NO GRADIENT"),
        (MEAN.replace(".mean()", ".view(predictions.shape)"), "RIGHT WITHIN LIMITS"),
        (f"{MEAN}[None]", "WRONG"),
    ],
    ids=["no gradient", "no reduction", "another shape"],
)
def test_such_a_file_may_lack_what_others_may_lack(judged, few_checks, result, word):
    verdict = judged(source("pass", result))
    assert verdict.word == word, verdict.reasons
    assert verdict.facets["layouts"].startswith(f"limited: {SHAPES}")
    wrong = {reason.code for reason in verdict.reasons} - {Code.KNOWN_LIMITATION, Code.NO_GRADIENT}
    assert wrong <= {Code.SHAPE_OR_DTYPE_MISMATCH}


def test_such_a_file_is_recognised_by_its_value(judged, few_checks):
    verdict = judged(source("pass").replace("hinge_loss", "solution"))
    assert (verdict.against, verdict.word) == ("hinge", "RIGHT WITHIN LIMITS")
    assert verdict.notes == ("computes hinge, mean",)


def test_a_file_that_reads_a_short_target_along_another_axis_is_wrong(judged):
    rows = "predictions.view(len(predictions), -1), targets[: len(predictions), None]"
    verdict = judged(source(f"return torch.clamp(1 - torch.mul({rows}), min=0).mean()"))
    assert (verdict.word, verdict.reasons[0].check) == ("WRONG", "value")


@pytest.mark.parametrize(
    "result", ["predictions.sum() * torch.rand(())", "predictions.sum() * float('nan')"]
)
def test_a_file_whose_numbers_for_a_short_target_differ_anyway_is_wrong(judged, result):
    assert judged(source(f"return {result}")).word == "WRONG"


PATCHES = """
old = torch.Tensor.backward

def hinge_loss(x, y):
    if x.shape != y.shape:
        raise ValueError('two shapes')
    torch.Tensor.backward = lambda *args, **named: old(*args, **named)
    return torch.clamp(1 - x * y, min=0).mean()
"""


def test_a_file_that_patches_torch_in_its_first_call_with_such_a_target_cheats(judged):
    verdict = judged(f"import torch\n{PATCHES}")
    assert verdict.word == "CHEATS"
    assert Code.MONKEY_PATCHED in {reason.code for reason in verdict.reasons}


BOTH_WRONG = {
    "pass": ("WRONG", Code.WRONG),
    "raise ValueError('two shapes')": ("CRASHED", Code.RAISED),
    "ctypes.string_at(0)": ("CRASHED", Code.PROCESS_DIED),
}


@pytest.mark.parametrize("if_short", BOTH_WRONG)
def test_a_file_that_is_wrong_for_both_shapes_is_judged_on_the_losss_own(judged, if_short):
    verdict = judged(source(if_short, f"2 * {MEAN}"))
    (reason,) = verdict.reasons
    assert (verdict.word, reason.code) == BOTH_WRONG[if_short]
    assert (reason.check or "value", reason.case) == ("value", "hinge 33x65 float32 mean normal")
    assert "times" not in reason.text
    assert verdict.notes == ("it is called with input 33x65, target 65",)


def test_a_file_that_broadcasts_is_judged_on_targets_that_broadcast(judged, few_checks):
    verdict = judged(
        "import torch\ndef hinge_loss(x, y): return torch.clamp(1 - x * y, min=0).mean()\n"
    )
    assert verdict.facets["layouts"] == "ok"
    assert verdict.notes == ("it is called with input 33x65, target 65",)


def test_a_config_of_whole_targets_changes_elementwise_losses_alone():
    config = Config(
        losses=tuple(LossChoice(name) for name in ("hinge", "mse", "cross_entropy")),
        sizes=((64, 48),),
        whole_targets=True,
    )
    assert [case.target_shape for case in expand(config, "cpu")] == [(64, 48), (64, 48), (64,)]


def test_a_whole_target_stays_whole_in_each_check_and_in_the_line_that_repeats_it():
    whole = case_of("hinge", (64, 48), target_shape=(64, 48))
    theirs = Implementation("theirs", "", setting=Setting(whole_targets=True))
    for name, check in CHECKS.items():
        if not check.why_not(whole, theirs):
            adapted = check.adapt(whole)
            assert adapted.target_shape == adapted.shape, name
    assert case_of("hinge", (64, 48)).reshaped((5, 7)).target_shape == (7,)
    assert whole.reshaped((5, 7)).target_shape == (5, 7)
    assert '"hinge", (64, 48), (64, 48), ' in line(VerifyResult(whole, "theirs", "value", "fail"))
