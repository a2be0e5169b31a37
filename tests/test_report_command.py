import json
from xml.etree import ElementTree

import pytest

from losscli.cli import main
from losscli.compare.comparison import compare
from losscli.compare.gate import Comparisons, record_of
from losscli.errors import EXIT_OK, EXIT_UNFIT, UsageError
from losscli.render.html.any_record import read_record
from losscli.render.html.page import sections
from losscli.runs.encoding import finite
from losscli.runs.measurements import Speedup
from losscli.runs.records import FAIL
from tests.handmade import result, run
from tests.parameters import SLOW, naming
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


def test_page_goes_to_standard_output_without_o_and_help_waits_for_no_records(base, capfdbinary):
    assert reaches("msgspec", "losscli.cli.report", set()) is None
    assert report(base) == EXIT_OK
    assert capfdbinary.readouterr().out.startswith(b"<!doctype html>")


def test_every_kind_of_record_has_a_page_whatever_its_format(write, slower, tmp_path, capsys):
    page = tmp_path / "page.html"
    write("data/runs/base.jsonl", measured(), "jsonl")
    assert report("base", "-o", "page.html") == EXIT_OK
    for format in ("json", "jsonl"):
        write("run", verified(), format)
        assert report("run", "-o", "page.html") == EXIT_OK
        assert "verify" in page.read_text()
        options = ["--fail-on", "5%", "--format", format, "-o", "found"]
        main.run(["compare", "base.json", "new.json", *options])
        assert report("found", "-o", "page.html") == EXIT_OK
        assert "slower:" in page.read_text()
        assert "new.json against base.json: 48 rows" in page.read_text()
    half = f"{json.dumps(VERDICT)}\n{json.dumps(VERDICT)[:20]}"
    judged = {"schema_version": 1, "kind": "judge", "verdicts": [VERDICT]}
    for text in (json.dumps(judged), half):
        (tmp_path / "verdicts").write_text(text)
        assert report("verdicts", "-o", "page.html") == EXIT_OK
        assert "mine.py" in page.read_text()


VERDICT = {"id": "a", "file": "mine.py", "word": "RIGHT", "against": "mse", "device": "cpu"}


NO_RECORDS = {
    "": "is not a record of losscli. Name a run of bench, verify or self-test, verdicts",
    "[1, 2]": "is not a record of losscli",
    '{"kind": "mutate", "results": []}': "holds a record of 'mutate'. Name a run of bench",
    '{"kind": "judge", "verdicts": [{"id": 3}]}': "the record is not valid: 'verdicts",
    '{"kind": "judge", "verd': "is cut off or damaged",
    '{"kind": "compare"}': "the record is not valid",
    '{"id": 1}': "the record is not valid",
    '{"schema_version": 99, "kind": "bench", "results": []}': "was written by a later losscli",
}
WRONG = {
    "": "name a record: losscli report RUN -o report.html.",
    "nope": "there is no run 'nope'",
    "base.json -o base.json": "is the record 'base.json' itself",
    "base.json --plot limit-forward": "Add --format svg.",
    "base.json --format svg": "choose a plot with --plot: limit-",
    "base.json --format svg --plot x": "unknown plot 'x'",
    "base.json --format pdf": "unknown format 'pdf'",
    ".": "is a directory",
    "/dev/zero": "neither a file nor a pipe",
}


def test_wrong_usage_or_record_is_one_message(base, tmp_path, refused):
    for arguments, message in WRONG.items():
        refused(f"report {arguments}", message)
    for text, message in NO_RECORDS.items():
        (tmp_path / "file").write_text(text)
        refused("report file", message)


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


@pytest.mark.parametrize("odds", [1, pytest.param(len(ODD), marks=SLOW)])
def test_record_with_an_odd_value_has_a_page_or_one_message(tmp_path, odds):
    """Each place of each record has one of the odd values, and all of them in `make test-all`."""
    path = tmp_path / "record"
    for kind, made in records().items():
        record, refused = finite(made), 0
        for n, place in enumerate(places(record)):
            for k in range(odds):
                odd = ODD[(n + k) % len(ODD)]
                path.write_text(json.dumps(changed(record, place, odd)))
                try:
                    with naming(kind, place, odd):
                        sections({"a": read_record(path)})
                except UsageError:
                    refused += 1
        assert refused > 10 * odds, kind


def test_every_listed_plot_is_valid_svg(base, capsys, tmp_path):
    assert report(base, "--list-plots") == EXIT_OK
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    forward = "limit-mse-float32-mean-forward"
    assert names[:2] == [forward, f"{forward}-backward"]
    assert len(names) == len(set(names))
    for name in names:
        assert report(base, "--format", "svg", "--plot", name, "-o", "plot.svg") == EXIT_OK
        root = ElementTree.parse(tmp_path / "plot.svg").getroot()
        assert root.tag.endswith("}svg")
        assert "prefers-color-scheme" in (tmp_path / "plot.svg").read_text()


def test_page_says_what_to_install(base, monkeypatch, capsys):
    monkeypatch.setattr("losscli.cli.report.find_spec", lambda name: None)
    assert report(base) == EXIT_UNFIT
    assert "pip install 'losscli[report]'" in capsys.readouterr().err
