"""`make sanitize`: its calls, and its reading of the tools' output."""

from __future__ import annotations

import itertools
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from losscli import functional as functional  # defines the operators
from losscli.losses import LOSSES, ROW_LOSSES, Operand
from losscli.losses.domain import POSITIVE
from losscli.operators import loading
from tests.machinery import MACHINERY
from tests.standin import write_program
from tools import element_calls, every_call, part_calls, row_calls, sanitize
from tools import general_row_calls as general
from tools import sanitize_coverage as coverage

CALLS = tuple(element_calls.calls())
SITES = itertools.count(1)

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
    """A GPU, and a stand-in for the sanitizer."""
    write_program(tmp_path / "compute-sanitizer", SANITIZER)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(sanitize, "prepare", lambda only: None)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    calls = [row_calls.RowCall("float32", classes) for classes in (16, 1, 7)]
    reached = [["cross_entropy: losscli::team<1>"], ["cross_entropy: losscli::team<1>"], []]
    monkeypatch.setattr(
        sanitize.Plan,
        "of",
        lambda only, *, profiled: sanitize.Plan(every_call.ROWS, calls, reached),
    )


def test_the_calls_cover_every_loss_dtype_layout_strategy_and_order():
    assert 100 * len(MACHINERY) <= len([c for c in CALLS if c.loss in MACHINERY])
    assert {(c.loss, c.dtype) for c in CALLS} == {
        (a, b) for a in LOSSES for b in element_calls.DTYPES
    }
    assert {c.layout for c in CALLS} == {"", *element_calls.EVERY_LAYOUT}
    assert {c.size for c in CALLS} >= {*element_calls.SIZES, *element_calls.MANY}
    assert {(c.strategy, c.order) for c in CALLS} >= {
        (strategy, order) for strategy in element_calls.STRATEGIES for order in (0, 1)
    }
    assert {c.target for c in CALLS} == {"", *element_calls.MIXED}
    assert element_calls.STEPS in {c.incoming for c in CALLS}
    assert {(c.loss, c.order) for c in CALLS} == {(a, b) for a in LOSSES for b in (0, 1, 2)}


def test_the_calls_of_cross_entropy_cover_its_forms(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor: tensor)
    for loss in ("cross_entropy", "cross_entropy_with_probabilities"):
        loading.load_loss(loss, "cpu")
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
    loading.load_loss(loss, "cpu")
    spec = ROW_LOSSES[loss]
    made = list(general.calls(loss, spec.rows, spec.roles))
    assert {(c.dtype, c.length) for c in made} >= {
        (dtype, length) for dtype in general.DTYPES for length in general.LENGTHS
    }
    assert {c.layout for c in made} == {"dense", "shifted", "apart", "transposed"}
    for call in made:
        if call.length in {9, 1025} and not call.wrong:
            general.make(call, 1)


def test_the_calls_of_parts_cover_their_forms():
    for loss in every_call.PARTS_NEED:
        loading.load_loss(loss, "cpu")
    made = list(part_calls.calls())
    forms = (*part_calls.SETTINGS, part_calls.ENTROPIES, part_calls.DIVERGENCE)
    assert {(c.dtype, c.widths, c.form) for c in made} == {
        *itertools.product(part_calls.DTYPES, part_calls.WIDTHS, forms)
    }
    for call in made:
        if call.classes < 100:
            part_calls.make(call, "cpu")


@pytest.mark.parametrize("order", [0, 1, 2])
def test_a_call_of_each_order_can_be_made(monkeypatch, order):
    """On the CPU, which the tensors then stay on."""
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor: tensor)
    for call in [c for c in CALLS if c.order == order][:3]:
        element_calls.make(call, next(SITES))


def test_calls_of_each_layout_and_dtype_of_a_target_can_be_made(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor: tensor)
    firsts = {(c.layout, c.target, len(c.incoming)): c for c in reversed(CALLS) if c.layout}
    for call in firsts.values():
        element_calls.make(call, next(SITES))


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
    for made in element_calls.calls_of_formula("mse", "float32"):
        element_calls.make(made, next(SITES))
        assert [each.requires_grad for each in seen[-1][:3]] == [made.order > 0] * 2 + [False]
        assert (seen[-1][2] > 0).all()


def test_number_of_calls_grows_little_with_each_further_loss(monkeypatch):
    monkeypatch.setitem(LOSSES, "further", replace(LOSSES["mse"], name="further"))
    more = [call for call in element_calls.calls() if call not in CALLS]

    assert {call.loss for call in more} == {"further"}
    assert {call.dtype for call in more} == {*element_calls.DTYPES}
    assert len(more) < 30


def test_tool_with_findings_is_named_and_exits_1(gpu, capsys):
    assert sanitize.main([]) == sanitize.EXIT_FOUND
    lines = [each for each in capsys.readouterr().out.splitlines() if not each.startswith(" ")]
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


def test_process_makes_the_calls_of_its_numbers(gpu, capsys, monkeypatch, tmp_path):
    made = []
    calls = [(number, lambda number=number: made.append(number)) for number in range(10)]
    monkeypatch.setattr(sanitize, "every_call", lambda only: iter(calls))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    (tmp_path / "numbers.json").write_text("[2, 5, 9]")
    assert sanitize.main(["--calls", "--numbers", str(tmp_path / "numbers.json")]) == 0
    assert made == [2, 5, 9]
    assert capsys.readouterr().out == "made 2\nmade 5\nmade 9\n3 calls\n"
    assert sanitize.main(["--calls"]) == 0
    assert made[3:] == [*range(10)]


def test_shares_have_each_call_once():
    numbers = [3, 5, 6, 10, 11, 40, 41]
    shares = [coverage.share(numbers, part, 3) for part in (1, 2, 3)]
    assert sorted(itertools.chain(*shares)) == numbers
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize("wrong", ["0/2", "3/2", "1", "a/b"])
def test_share_that_is_none_is_refused(wrong, capsys):
    with pytest.raises(SystemExit):
        sanitize.main(["--share", wrong])
    assert f"'{wrong}' is not a share. Write 1/4" in capsys.readouterr().err


def test_fewest_calls_reach_each_kernel_and_are_the_cheapest():
    reached = [["a", "b"], ["a"], ["b"], ["c", "a"], [], ["c"]]
    assert coverage.fewest(reached, [9, 1, 2, 5, 1, 7]) == [2, 3]
    assert coverage.fewest(reached, [1, 2, 2, 5, 1, 4]) == [0, 5]
    chosen = coverage.fewest(reached, [3] * 6)
    assert {name for number in chosen for name in reached[number]} == {"a", "b", "c"}
    assert coverage.fewest([[], []], [1, 1]) == [0, 1]  # without a profiler


def test_racecheck_watches_each_kernel_in_each_layout():
    calls = [
        row_calls.RowCall("float32", classes, layout=layout, rows=rows)
        for classes, layout, rows in itertools.product((9, 1025), ("dense", "shifted"), (5, 3000))
    ]
    plan = sanitize.Plan(every_call.ROWS, calls, [["team"], *[["team", "sum"]] * 7])
    numbers = plan.numbers("racecheck", every=False)
    chosen = [calls[number] for number in numbers]
    assert {(c.layout, c.rows) for c in chosen} == {(c.layout, c.rows) for c in calls}
    # The shortest call launches nothing that the next one, which is needed, does not launch too.
    assert len(numbers) == 4
    assert 0 not in numbers
    assert plan.numbers("memcheck", every=False) == [*range(8)]
    assert plan.numbers("racecheck", every=True) == [*range(8)]


def test_large_calls_cost_more():
    small, long = (row_calls.RowCall("float32", n) for n in (16, 600_011))
    many, general_call = row_calls.RowCall("float32", 16, 70_001), general.RowCall("nll", "f", 16)
    assert coverage.cost(small) < coverage.cost(many)
    assert coverage.cost(small) < coverage.cost(long)
    assert coverage.cost(general_call) < coverage.cost(replace(general_call, length=10**6))


COVERED = """\
#!/bin/sh
echo "========= COMPUTE-SANITIZER"
for last; do :; done
n=$(tr -d '[],' < "$last" | wc -w)
for number in $(tr -d '[],' < "$last"); do echo "made $number"; done
[ -e "$0.slow" ] && sleep 60
echo "$n calls"
"""


def test_shares_of_several_runs_are_covered_together(gpu, capsys, tmp_path):
    write_program(tmp_path / "compute-sanitizer", COVERED)
    record = tmp_path / "covered.jsonl"
    assert sanitize.main(["--share", "1/2", "-o", str(record)]) == 0
    out = capsys.readouterr().out
    assert "memcheck: clean, 2 calls" in out
    assert "racecheck: clean, 1 calls" in out
    assert "  kernels: 1 of 1" in out
    assert "  losses: cross_entropy 1/1" in out
    assert "  walks: team 1/1" in out
    assert "  calls by dtype: float32 2" in out
    # Another share of racecheck has no call, and the third tool none of the kernels.
    assert sanitize.main(["--share", "2/2", "-o", str(record)]) == 0
    capsys.readouterr()
    assert sanitize.main(["--covered", str(record)]) == 0
    out = capsys.readouterr().out
    assert "memcheck: clean, 3 of 3 calls, shares 1/2, 2/2" in out
    assert "racecheck: clean, 1 of 1 calls" in out


def test_kernel_or_tool_that_is_left_makes_the_coverage_incomplete(tmp_path, capsys):
    one = coverage.Covered(
        "memcheck", 2, 3, shares=["1/2"], kernels=["a: k<1>"], missing=["a: k<2>"]
    )
    other = replace(one, shares=["2/2"], kernels=["a: k<2>"], missing=["a: k<1>"])
    for number, each in enumerate((one, other)):
        coverage.write(tmp_path / f"{number}.jsonl", each)
    files = [str(tmp_path / f"{number}.jsonl") for number in range(2)]
    assert sanitize.main(["--covered", files[0]]) == sanitize.EXIT_FOUND
    assert "kernels: 1 of 2" in capsys.readouterr().out
    # Both shares reach every kernel, but three tools have not run.
    assert sanitize.main(["--covered", *files]) == sanitize.EXIT_FOUND
    assert "kernels: 2 of 2" in capsys.readouterr().out
    for tool in sanitize.TOOLS:
        coverage.write(tmp_path / "0.jsonl", replace(one, tool=tool, missing=[]))
    assert sanitize.main(["--covered", *files]) == 0
    coverage.write(tmp_path / "0.jsonl", replace(one, clean=False))
    assert sanitize.main(["--covered", *files]) == sanitize.EXIT_FOUND


def test_tool_that_takes_too_long_is_ended_and_keeps_what_it_made(gpu, capsys, tmp_path):
    write_program(tmp_path / "compute-sanitizer", COVERED)
    (tmp_path / "compute-sanitizer.slow").touch()
    record = tmp_path / "covered.jsonl"
    words = ["--tool", "memcheck", "--limit", "2", "-o", str(record)]
    assert sanitize.main(words) == 0
    assert "memcheck: clean so far, ended after 2 s, 3 calls in" in capsys.readouterr().out
    assert coverage.read([record])["memcheck"].calls == 3


def test_kernels_are_told_by_their_walk():
    kernels = [
        "nll: void losscli::cuda::(anonymous namespace)::team_kernel<float, 1, true>(Args)",
        "nll: void losscli::cuda::slots_kernel<__nv_bfloat16>(Args)",
        "nll: losscli::cuda::sum(double)",
    ]
    assert [coverage._walk(kernel) for kernel in kernels] == ["team_kernel", "slots_kernel", "sum"]
