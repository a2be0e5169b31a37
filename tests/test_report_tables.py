"""The layout of tables: every table that losscli prints goes through it."""

from losscli.render.layout import MARKDOWN, lay_out
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
    for gap in ("", "-", IMPOSSIBLE):
        assert lay_out(["share"], [["7.5"], [gap]]).splitlines()[2].endswith(" 7.5")


def test_markdown_has_one_line_of_headers():
    assert lay_out(["loss", "median\ntime"], ROWS, MARKDOWN).splitlines() == [
        "| loss  | median time |",
        "|-------|-------------|",
        "| mse   |      1.5 ms |",
        "| hinge |      =12 us |",
    ]


def test_headers_and_rows_may_be_missing():
    assert lay_out((), [["a", "1"], ["bb", "22"]], align=("left", "left")) == "a   1\nbb  22"
    assert lay_out(["loss"], []) == ""
