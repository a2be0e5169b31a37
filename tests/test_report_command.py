"""`losscli report`: which records it takes, what it writes, and what it says otherwise."""

import json
import os
import sys
from xml.etree import ElementTree

import pytest

from losscli.cli import main
from losscli.errors import EXIT_OK, EXIT_UNFIT, EXIT_USAGE
from tests.test_html_page import measured, verified
from tests.without_torch import run_without_torch


def report(*arguments):
    return main.run(["report", *arguments])


@pytest.fixture
def base(write):
    write("base.json", measured())
    return "base.json"


def test_page_is_written_without_torch(base, tmp_path):
    made = run_without_torch("report", str(tmp_path / base), "-o", str(tmp_path / "page.html"))
    assert (made.returncode, made.stdout) == (EXIT_OK, "")
    assert made.stderr == f"losscli: wrote {tmp_path / 'page.html'}\n"
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")


def test_page_goes_to_standard_output_without_o(base, capfdbinary):
    assert report(base) == EXIT_OK
    assert capfdbinary.readouterr().out.startswith(b"<!doctype html>")


@pytest.mark.parametrize("format", ["json", "jsonl"])
def test_kinds_of_runs_are_found_out_by_reading(write, tmp_path, format):
    write("run", verified(), format)
    assert report("run", "-o", "page.html") == EXIT_OK
    assert "verify" in (tmp_path / "page.html").read_text()


def test_saved_run_is_found_by_its_name(write, tmp_path):
    write("data/runs/base.jsonl", measured(), "jsonl")
    assert report("base", "-o", "page.html") == EXIT_OK


@pytest.mark.parametrize("format", ["json", "jsonl"])
def test_comparison_is_read(slower, tmp_path, format, capsys):
    options = ["--fail-on", "5%", "--format", format, "-o", "found"]
    main.run(["compare", "base.json", "new.json", *options])
    assert report("found", "-o", "page.html") == EXIT_OK
    text = (tmp_path / "page.html").read_text()
    assert "slower: " in text
    assert "new.json against base.json: 48 rows" in text


VERDICT = {"id": "a", "file": "mine.py", "word": "RIGHT", "against": "mse", "device": "cpu"}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"schema_version": 1, "kind": "judge", "verdicts": [VERDICT]}),
        f"{json.dumps(VERDICT)}\n{json.dumps(VERDICT)[:20]}",
    ],
    ids=["json", "lines with half a line at the end"],
)
def test_verdicts_are_read(tmp_path, text):
    (tmp_path / "verdicts").write_text(text)
    output = str(tmp_path / "page.html")
    assert report(str(tmp_path / "verdicts"), "-o", output) == EXIT_OK
    assert "mine.py" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a record of losscli. Name a run of bench, verify or self-test, verdicts"),
        ("[1, 2]", "is not a record of losscli"),
        ('{"kind": "mutate", "results": []}', "holds a record of 'mutate'. Name a run of bench"),
        ('{"kind": "judge", "verdicts": [{"id": 3}]}', "the record is not valid: 'verdicts"),
        ('{"kind": "judge", "verd', "is cut off or damaged"),
        ('{"kind": "compare"}', "the record is not valid"),
        ('{"id": 1}', "the record is not valid"),
        (
            '{"schema_version": 99, "kind": "bench", "results": []}',
            "was written by a later losscli",
        ),
    ],
)
def test_file_that_is_no_record_is_one_message(tmp_path, text, message, capsys):
    (tmp_path / "file").write_text(text)
    assert report(str(tmp_path / "file")) == EXIT_USAGE
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name a record: losscli report RUN -o report.html."),
        (("nope",), "there is no run 'nope'"),
        (("base.json", "-o", "base.json"), "is the record 'base.json' itself"),
        (("base.json", "--plot", "limit-forward"), "Add --format svg or --format png."),
        (("base.json", "--format", "svg"), "choose a plot with --plot: limit-"),
        (("base.json", "--format", "svg", "--plot", "x"), "unknown plot 'x'"),
        (("base.json", "--format", "pdf"), "unknown format 'pdf'"),
        ((".",), "is a directory"),
        (("/dev/zero",), "is no regular file"),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_one_message(base, arguments, message, capsys):
    assert report(*arguments) == EXIT_USAGE
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_plots_are_listed_by_name(base, capsys):
    assert report(base, "--list-plots") == EXIT_OK
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert names[:2] == [
        "limit-mse-float32-mean-forward",
        "limit-mse-float32-mean-forward-backward",
    ]
    assert len(names) == len(set(names))


def test_every_listed_plot_is_valid_svg(base, capsys, tmp_path):
    report(base, "--list-plots")
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    for name in names:
        assert report(base, "--format", "svg", "--plot", name, "-o", "plot.svg") == EXIT_OK
        root = ElementTree.parse(tmp_path / "plot.svg").getroot()
        assert root.tag.endswith("}svg")
        assert "prefers-color-scheme" in (tmp_path / "plot.svg").read_text()


def test_png_is_written_where_its_package_is(base, tmp_path):
    pytest.importorskip("resvg_py", reason="resvg-py is not installed")
    plot = "limit-mse-float32-mean-forward"
    assert report(base, "--format", "png", "--plot", plot, "-o", "plot.png") == EXIT_OK
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_png_says_what_to_install(base, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    plot = "limit-mse-float32-mean-forward"
    assert report(base, "--format", "png", "--plot", plot, "-o", "plot.png") == EXIT_UNFIT
    assert "pip install 'losscli[report]'" in capsys.readouterr().err
    assert not os.path.exists("plot.png")


def test_page_says_what_to_install(base, monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert report(base) == EXIT_UNFIT
    assert "pip install 'losscli[report]'" in capsys.readouterr().err
