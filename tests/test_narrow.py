import os

import pytest
from msgspec.structs import replace

from losscli.cli import main
from losscli.render import output
from losscli.render.records import render
from losscli.render.text import narrowed
from losscli.truth import tolerances
from losscli.views import verify
from tests.fabricated import machine
from tests.handmade import PAIR, case, result, run


def columns(text):
    lines = text.splitlines()
    index = next(i for i, line in enumerate(lines) if line.startswith("---"))
    return [word for line in lines[2:index] for word in line.split()]


@pytest.mark.parametrize("width", [80, 60, 48])
def test_narrow_table_fits_and_keeps_what_matters_most(width):
    text = render(run(*PAIR), "table", width)
    table = text.split("\n\n")[1]
    assert max(map(len, table.splitlines())) <= width
    assert {"case", "pass", "impl", "median"} <= set(columns(text))


def test_dropped_columns_are_named_least_important_first_and_a_wide_table_drops_none():
    text = render(run(*PAIR, result(no_limit="no room " * 20)), "table", 60)
    assert max(map(len, text.splitlines()[:-1])) <= 60
    assert "p20-p80" not in columns(text)
    dropped = next(line for line in text.splitlines() if line.startswith("not shown"))
    assert dropped.startswith("not shown in 60 columns: p20-p80")
    assert "--format json has all" in " ".join(text.split())
    wide = render(run(*PAIR), "table")
    assert "not shown" not in wide
    assert {"p20-p80", "temp", "ulp"} <= set(columns(wide))


def test_legend_explains_the_columns_that_are_shown_and_no_others():
    wide, narrow = (render(run(*PAIR), "table", width, verbose=True) for width in (100, 50))
    assert "temp mem: peak temporary memory" in " ".join(wide.split())
    assert "vs ref: " in " ".join(narrow.split())


def test_other_formats_do_not_depend_on_the_width():
    for format in ("md", "csv", "json", "jsonl"):
        assert render(run(*PAIR), format, 40) == render(run(*PAIR), format)


def test_columns_are_dropped_only_as_far_as_needed():
    headers, rows = ["a", "bb", "ccc"], [["1", "22", "333"]]
    assert narrowed(headers, rows, 10, ("ccc", "bb")) == (headers, rows)
    assert narrowed(headers, rows, 9, ("ccc", "bb")) == (["a", "bb"], [["1", "22"]])
    assert narrowed(headers, rows, 1, ("ccc", "bb")) == (["a"], [["1"]])


class _Stdout:
    def __init__(self, terminal):
        self.terminal = terminal

    def isatty(self):
        return self.terminal


@pytest.mark.parametrize(
    ("is_terminal", "size", "expected"),
    [(True, 72, 72), (True, 240, 100), (True, 9, 48), (False, 72, 100)],
)
def test_width_is_that_of_the_terminal_between_48_and_100(monkeypatch, is_terminal, size, expected):
    monkeypatch.setattr("sys.stdout", _Stdout(is_terminal))
    monkeypatch.setattr("shutil.get_terminal_size", lambda _: os.terminal_size((size, 9)))
    assert output.width() == expected


def test_comparison_goes_without_columns(write, capsys, monkeypatch):
    write("base.json", machine(1))
    write("new.json", machine(2))
    monkeypatch.setattr("losscli.render.records.width", lambda: 60)
    assert main.run(["compare", "base.json", "new.json"]) == 0
    out = capsys.readouterr().out
    assert "not shown in 60 columns: base" in out
    assert "new/base: the new time divided by that of the base" in " ".join(out.split())


def test_list_of_runs_goes_without_columns(write, capsys, monkeypatch):
    write("data/runs/before.jsonl", machine(1), "jsonl")
    monkeypatch.setattr("losscli.cli.runs.width", lambda: 40)
    assert main.run(["runs"]) == 0
    assert "not shown in 40 columns: " in capsys.readouterr().out


def test_parameter_is_shown_at_its_default_where_it_is_swept_alone():
    half, default = (case(loss="smooth_l1", params={"beta": beta}) for beta in (0.5, 1.0))
    swept = render(run(result(case=half), result(case=default)), "table")
    assert "smooth_l1 beta=0.5 " in swept
    assert "smooth_l1 beta=1 " in swept
    assert "beta" not in render(run(result(case=default)), "table")


@pytest.mark.parametrize("name", ["ELEMENT_ULP", "ONCE_ROUNDED_ULP", "VALUE_ULP"])
def test_allowed_ulp_beside_the_found_is_that_of_the_tolerances(name):
    assert getattr(verify, name) == getattr(tolerances, name)


def test_samples_that_do_not_decide_are_explained():
    from losscli.runs.measurements import Speedup

    unclear = replace(result(), ratios={"reference": Speedup(1.0, 0.5, 2.0)})
    text = " ".join(render(run(unclear), "table", verbose=True).split())
    assert "?: inconclusive, too few or too noisy samples" in text
    assert "?: " not in render(run(*PAIR), "table")
