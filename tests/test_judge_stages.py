from typing import Any

import pytest

from losscli.bench.plan import plan
from losscli.config.schema import Config, LossChoice, Timing
from losscli.implementations.sandbox import client
from losscli.implementations.sandbox.isolation_parts import NAMES as PARTS
from losscli.judge.against_loss import worth_processes
from losscli.judge.judgement import code_of
from losscli.judge.verdict_parts import JudgeReason, word_of
from losscli.reasons import Code
from losscli.runs.records import FAIL, VerifyResult
from tests.handmade import case_of
from tests.parameters import SLOW

RIGHT = """
import torch

def mse_loss(input, target, *, reduction="mean"):
    return torch.nn.functional.mse_loss(input, target, reduction=reduction)
"""

RIGHT_MODEL = """
import torch

class Model(torch.nn.Module):
    def forward(self, input, target): return torch.nn.functional.mse_loss(input, target)

class ModelNew(torch.nn.Module):
    def forward(self, input, target): return torch.nn.functional.mse_loss(input, target)

def get_inputs(): return [torch.rand(8, 8), torch.rand(8, 8)]
"""

DOES_NOT_COMPILE = """
from torch.utils.cpp_extension import load_inline

SOURCE = '''
double loss(double input, double target) {
  return inptu - target;
}
'''
mse_loss = load_inline(
    "misspelt", SOURCE, functions=["loss"], no_implicit_headers=True,
    with_pytorch_error_handling=False, verbose=VERBOSE,
)

class ModelNew:
    def forward(self, input, target): return mse_loss.loss(input, target)
"""


@pytest.mark.parametrize("source", [RIGHT, RIGHT_MODEL], ids=["function", "beside its Model"])
def test_file_does_not_run_where_a_part_of_a_required_isolation_is_missing(
    judged, monkeypatch, source
):
    monkeypatch.setattr(client, "missing", lambda reached: ("network",))
    verdict = judged(f"print('it has run')\n{source}", timed=True, require_isolation=True)
    (reason,) = verdict.reasons
    assert (verdict.word, verdict.exit_code, reason.code) == ("NOT JUDGED", 4, "not_isolated")
    assert "lacks: network" in reason.text
    assert verdict.log == ""


def test_verdict_on_a_file_that_does_not_build_says_how_it_was_isolated(judged):
    verdict = judged(f"raise ValueError\n{RIGHT}")
    assert verdict.word == "DOES NOT BUILD"
    assert {"session", "environment"} <= {*verdict.isolation}
    assert {*verdict.isolation, *verdict.not_isolated} == {*PARTS}


def test_file_that_was_written_over_is_judged_anew(judged):
    assert judged(RIGHT.replace("return", "return 2 *")).word == "WRONG"
    assert judged(f"raise ValueError\n{RIGHT}").word == "DOES NOT BUILD"


@pytest.mark.parametrize("verbose", [False, True])
def test_the_first_error_of_a_compiler_is_told_with_its_line_of_the_file(judged, verbose):
    verdict = judged(DOES_NOT_COMPILE.replace("VERBOSE", str(verbose)))
    (reason,) = verdict.reasons
    assert (verdict.word, reason.code) == ("DOES NOT BUILD", "build_failed")
    assert "kernel.py:6: error: " in reason.text
    assert reason.text.endswith("in `return inptu - target;`")


def test_lack_of_memory_before_timing_leaves_a_file_not_judged():
    stages: dict[Any, str] = {"small": "NOT JUDGED", "checks": "NOT JUDGED", "time": "RIGHT"}
    for stage, word in stages.items():
        assert word_of([JudgeReason(Code.INSUFFICIENT_MEMORY, stage, "out of memory")]) == word


def test_large_tensors_are_timed_by_one_process():
    timing = Timing(0.2, 1.5, processes=3)
    for shape, processes in (((2**14, 2**14), 1), ((2**13, 2**14), 3)):
        (task,) = plan(Config(losses=(LossChoice("mse"),), sizes=(shape,), timing=timing), "cpu")
        assert worth_processes(task).timing.processes == processes


MISFITS = {
    "no reduction": "loss if reduction == 'none' else torch.nn.functional.mse_loss("
    "input, target, reduction='none') * FACTOR",
    "one element": "loss.reshape(-1)[:1] if reduction != 'none' else loss",
    "another dtype": "loss.double()",
    "both": "loss.reshape(-1)[:1].half() if reduction != 'none' else loss.half()",
}
MISFIT = """
import torch

def mse_loss(input, target, *, reduction="mean"):
    loss = FACTOR * torch.nn.functional.mse_loss(input, target, reduction=reduction)
    return RESULT
"""


@pytest.mark.parametrize(
    "result",
    [
        pytest.param(result, id=name, marks=[] if name == "both" else SLOW)
        for name, result in MISFITS.items()
    ],
)
@pytest.mark.parametrize(
    ("factor", "codes"),
    [("1", {"shape_or_dtype_mismatch"}), ("2", {"shape_or_dtype_mismatch", "wrong"})],
    ids=["right", "wrong"],
)
def test_judging_goes_on_with_a_result_of_another_shape_or_dtype(judged, result, factor, codes):
    if result == MISFITS["both"] and factor == "1":
        codes = codes | {"wrong"}  # what float16 has lost does not come back
    verdict = judged(MISFIT.replace("RESULT", result).replace("FACTOR", factor))
    found = {reason.code for reason in verdict.reasons} - {"same_error_as_pytorch"}
    assert (verdict.word, found) == ("WRONG", codes), verdict.reasons
    assert verdict.checks or "wrong" in codes


def test_the_first_reason_ends_the_judging_where_that_is_asked_for(judged):
    source = MISFIT.replace("RESULT", "loss.double()").replace("FACTOR", "1")
    verdict = judged(source, until_first=True)
    assert [reason.code for reason in verdict.reasons] == ["shape_or_dtype_mismatch"]
    assert not verdict.checks


def test_a_file_that_does_not_take_what_a_job_asks_for_is_not_called(judged):
    source = RIGHT.replace("mse_loss", "huber_loss")
    (reason,) = judged(source, quick=False, parameters={"delta": 2.0}).reasons
    assert (reason.code, reason.text) == ("signature", "huber_loss takes no delta")


ASSERTED = "raised AcceleratorError: CUDA error: device-side assert triggered"
RESULTS: dict[str, Any] = {
    "an error for a layout": ("layouts", "raised", "", 1.0, "unsupported_input"),
    "an error for a value": ("value", "raised", "", 1.0, "raised"),
    "an assertion": ("layouts", "device_error", ASSERTED, 1.0, "device_error"),
    "an assertion at an end of a domain": (
        "value",
        "device_error",
        ASSERTED,
        0.0,
        "unsupported_input",
    ),
    "an illegal access": ("layouts", "device_error", "illegal", 1.0, "device_error"),
    "a wrong number": ("value", "", "", 1.0, "wrong"),
    "a wrong number at an end of a parameter's domain": ("value", "", "", 0.0, "known_limitation"),
    "an error at that end": ("value", "raised", "", 0.0, "unsupported_input"),
    "a wrong number near that end": ("value", "", "", 1e-3, "wrong"),
}


def test_a_failed_result_has_the_code_of_its_check_and_parameters():
    for name, (check, code, reason, beta, due) in RESULTS.items():
        case = case_of("smooth_l1", (2, 3), params={"beta": beta}, distribution="normal")
        result = VerifyResult(case, "kernel.py", check, FAIL, reason=reason, code=code)
        assert code_of(result, "checks") == due, name


CLEARS_THE_SCREEN = r"""
print("\x1b[2J\rRIGHT  kernel.py")

def mse_loss(input, target, *, reduction="mean"):
    raise ValueError("\x1b[2J\x08RIGHT  kernel.py\u202e")
"""


def test_control_characters_of_a_file_are_shown_and_not_obeyed(judged):
    verdict = judged(CLEARS_THE_SCREEN)
    (reason,) = verdict.reasons
    assert r"\x1b[2J\x08RIGHT  kernel.py\u202e" in reason.text
    assert r"\x1b[2J\rRIGHT  kernel.py" in verdict.log
