"""`losscli report`: which records it takes, what it writes, and what it says otherwise."""

import json
from xml.etree import ElementTree

import pytest

from losscli.cli import main
from losscli.compare.comparison import compare
from losscli.compare.gate import Comparisons
from losscli.compare.record import record_of
from losscli.errors import EXIT_OK, EXIT_UNFIT, EXIT_USAGE, UsageError
from losscli.report.html.page import sections
from losscli.report.html.records import read_record
from losscli.runs.encoding import finite
from losscli.runs.records import FAIL, Speedup
from tests.handmade import result, run
from tests.test_html_page import check, measured, verified
from tests.test_layers import reaches
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


def test_help_waits_for_no_records():
    assert reaches("msgspec", "losscli.cli.report", set()) is None


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


ODD = (None, "", -1, 0, 1e300, [], {}, "x", ["x"], 10**30)


def places(value, path=()):
    """Yield the way to each value in a record, of lists only the first two."""
    if path:
        yield path
    items = list(value.items()) if isinstance(value, dict) else []
    for key, item in list(enumerate(value))[:2] if isinstance(value, list) else items:
        yield from places(item, (*path, key))


def changed(record, path, value):
    made = json.loads(json.dumps(record))
    place = made
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return made


def records():
    """Return a small record of each kind."""
    conditions = {"others": 0.2, "throttle_reasons": ["power limit"], "celsius": [40, 50]}
    ratio = {"reference": Speedup(2.0, 1.9, 2.1)}
    bench = run(result("reference"), result(conditions=conditions, ratios=ratio, limit_gbps=80.0))
    compared = Comparisons("base", {"new": compare(measured(), measured())})
    speed = [
        {"case": "a", "pass": "forward", "seconds": 1.0, "ratios": {"custom": [1.0, 0.9, 1.1]}}
    ]
    verdicts = {"kind": "judge", "verdicts": [{**VERDICT, "speed": speed}]}
    return {
        "bench": bench.to_json(),
        "verify": verified(check(), check("coverage", FAIL, reason="tile 0")).to_json(),
        "compare": record_of(compared).to_json(),
        "judge": verdicts,
    }


REST = ("verify", "compare")


@pytest.mark.parametrize(
    "kind", ["bench", "judge", *(pytest.param(kind, marks=pytest.mark.slow) for kind in REST)]
)
def test_record_with_an_odd_value_has_a_page_or_one_message(tmp_path, kind):
    record = finite(records()[kind])
    path = tmp_path / "record"
    refused = 0
    for place in places(record):
        for odd in ODD:
            path.write_text(json.dumps(changed(record, place, odd)))
            try:
                sections({"a": read_record(path)})
            except UsageError:
                refused += 1
    assert refused > 100


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name a record: losscli report RUN -o report.html."),
        (("nope",), "there is no run 'nope'"),
        (("base.json", "-o", "base.json"), "is the record 'base.json' itself"),
        (("base.json", "--plot", "limit-forward"), "Add --format svg."),
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


def test_page_says_what_to_install(base, monkeypatch, capsys):
    monkeypatch.setattr("losscli.cli.report.find_spec", lambda name: None)
    assert report(base) == EXIT_UNFIT
    assert "pip install 'losscli[report]'" in capsys.readouterr().err
