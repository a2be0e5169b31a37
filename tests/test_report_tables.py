"""The layout of tables: every table that losscli prints goes through it."""

import pytest

from losscli.report.tables import MARKDOWN, lay_out
from losscli.runs.judgements import IMPOSSIBLE

ROWS = [["mse", "1.5 ms"], ["hinge", "=12 us"]]


def test_columns_of_figures_are_aligned_to_the_right():
    assert lay_out(["loss", "median\ntime"], ROWS).splitlines() == [
        "loss   median",
        "         time",
        "-----  ------",
        "mse    1.5 ms",
        "hinge  =12 us",
    ]


def test_markdown_has_one_line_of_headers():
    assert lay_out(["loss", "median\ntime"], ROWS, MARKDOWN).splitlines() == [
        "| loss  | median time |",
        "|-------|-------------|",
        "| mse   |      1.5 ms |",
        "| hinge |      =12 us |",
    ]


def test_without_headers_there_is_no_rule():
    assert lay_out((), [["a", "1"], ["bb", "22"]], align=("left", "left")) == "a   1\nbb  22"


@pytest.mark.parametrize("cell", ["", "-", IMPOSSIBLE])
def test_a_column_of_figures_may_have_gaps(cell):
    assert lay_out(["share"], [["7.5"], [cell]]).splitlines()[2].endswith(" 7.5")


def test_without_rows_there_is_no_table():
    assert lay_out(["loss"], []) == ""
