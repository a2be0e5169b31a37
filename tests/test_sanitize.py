"""`make sanitize`: its calls, and its reading of the tools' output."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from losscli.extension import load
from losscli.losses import LOSSES, ROW_LOSSES, Operand
from losscli.losses.domain import POSITIVE
from tests import general_row_calls as general
from tests import row_calls, sanitize
from tests.machinery import MACHINERY
from tests.standin import write_program

CALLS = tuple(sanitize.calls())

# Fails where the tool is racecheck, as compute-sanitizer fails.
SANITIZER = """\
#!/bin/sh
echo "========= COMPUTE-SANITIZER"
if [ "$2" = racecheck ]; then
  echo "========= Error: Race reported between Write access and Read access"
  echo "========= RACECHECK SUMMARY: 1 hazard displayed"
  exit 1
fi
echo "12 calls"
"""


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """A GPU, and a sanitizer that stands in for the real one."""
    write_program(tmp_path / "compute-sanitizer", SANITIZER)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(sanitize, "prepare", lambda only_rows: None)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_the_calls_cover_every_loss_dtype_layout_strategy_and_order():
    assert 100 * len(MACHINERY) <= len([c for c in CALLS if c.loss in MACHINERY])
    assert {(c.loss, c.dtype) for c in CALLS} == {(a, b) for a in LOSSES for b in sanitize.DTYPES}
    assert {c.layout for c in CALLS} == {"", *sanitize.EVERY_LAYOUT}
    assert {c.size for c in CALLS} >= {*sanitize.SIZES, *sanitize.MANY}
    assert {(c.strategy, c.order) for c in CALLS} >= {
        (strategy, order) for strategy in sanitize.STRATEGIES for order in (0, 1)
    }
    assert {c.target for c in CALLS} == {"", *sanitize.MIXED}
    assert sanitize.STEPS in {c.incoming for c in CALLS}
    assert {(c.loss, c.order) for c in CALLS} == {(a, b) for a in LOSSES for b in (0, 1, 2)}


def test_the_calls_of_cross_entropy_cover_its_forms(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor: tensor)
    made = list(row_calls.calls())
    assert "probabilities" in {c.target for c in made}
    assert {(c.dtype, c.classes) for c in made} >= {
        (dtype, classes) for dtype in row_calls.DTYPES for classes in row_calls.CLASSES
    }
    for call in made:
        if call.classes == 9 and not call.wrong:
            row_calls.make(call, 1)


@pytest.mark.parametrize(
    "loss", [name for name in ROW_LOSSES if not name.startswith("cross_entropy")]
)
def test_the_calls_of_a_loss_over_rows_cover_its_forms(monkeypatch, loss):
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor: tensor)
    load.load_loss(loss, "cpu")
    spec = ROW_LOSSES[loss]
    made = list(general.calls(loss, spec.rows, spec.roles))
    assert {(c.dtype, c.length) for c in made} >= {
        (dtype, length) for dtype in general.DTYPES for length in general.LENGTHS
    }
    assert {c.layout for c in made} == {"dense", "shifted", "apart", "transposed"}
    for call in made:
        if call.length in {9, 1025} and not call.wrong:
            general.make(call, 1)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_a_call_of_each_order_can_be_made(monkeypatch, order):
    """On the CPU, which the tensors then stay on."""
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor: tensor)
    for call in [c for c in CALLS if c.order == order][:3]:
        sanitize.make(call)


def test_calls_of_each_layout_and_dtype_of_a_target_can_be_made(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor: tensor)
    firsts = {(c.layout, c.target, len(c.incoming)): c for c in reversed(CALLS) if c.layout}
    for call in firsts.values():
        sanitize.make(call)


def test_calls_of_a_loss_with_three_operands_can_be_made(monkeypatch):
    """The third is positive and has no gradient."""
    operands = (*LOSSES["mse"].operands, Operand("third", differentiable=False, domain=POSITIVE))
    spec = replace(LOSSES["mse"], operands=operands)
    seen = []

    def call(*given):
        seen.append(given)
        return sum(each.sum() * each.mean() for each in given[:3])

    monkeypatch.setitem(LOSSES, "mse", spec)
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor: tensor)
    monkeypatch.setattr(torch.ops.losscli, "mse", SimpleNamespace(default=call))
    for made in sanitize.calls_of_formula("mse", "float32"):
        sanitize.make(made)
        assert [each.requires_grad for each in seen[-1][:3]] == [made.order > 0] * 2 + [False]
        assert (seen[-1][2] > 0).all()


def test_number_of_calls_grows_little_with_each_further_loss(monkeypatch):
    monkeypatch.setitem(LOSSES, "further", replace(LOSSES["mse"], name="further"))
    more = [call for call in sanitize.calls() if call not in CALLS]

    assert {call.loss for call in more} == {"further"}
    assert {call.dtype for call in more} == {*sanitize.DTYPES}
    assert len(more) < 30


def test_tool_with_findings_is_named_and_exits_1(gpu, capsys):
    assert sanitize.main([]) == sanitize.EXIT_FOUND
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == list(sanitize.TOOLS)
    assert lines[0].startswith("memcheck: clean, 12 calls in ")
    assert lines[1].startswith("racecheck: FAILED")
    assert "Race reported between Write access and Read access" in lines[1]
    assert "1 hazard displayed" in lines[1]


def test_tools_without_findings_exit_0(gpu, capsys):
    assert sanitize.main(["--tool", "memcheck", "--tool", "initcheck"]) == 0
    assert capsys.readouterr().out.count(": clean, 12 calls in ") == 2


@pytest.mark.parametrize(("missing", "says"), [("gpu", "no GPU"), ("tool", "no compute-sanitizer")])
def test_missing_tool_or_gpu_is_one_message_and_exits_4(monkeypatch, capsys, missing, says):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: missing != "gpu")
    monkeypatch.setattr(sanitize, "find_sanitizer", lambda: None)
    assert sanitize.main([]) == sanitize.EXIT_UNFIT
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert says in captured.err


def test_jobs_share_the_calls_of_a_tool(gpu, capsys, monkeypatch):
    assert sanitize.main(["--tool", "memcheck", "--jobs", "3"]) == 0
    assert capsys.readouterr().out.startswith("memcheck: clean, 36 calls in ")

    made = []
    calls = [(number, lambda number=number: made.append(number)) for number in range(10)]
    monkeypatch.setattr(sanitize, "every_call", lambda only_rows: iter(calls))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    for job in ("0", "1", "2"):
        assert sanitize.main(["--calls", "--part", job, "3"]) == 0
    assert sorted(made) == [*range(10)]
