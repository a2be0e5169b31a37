"""The page of `losscli report`: whole, safe, small, and readable without its script."""

import base64
import json
import re
import zlib
from array import array
from html.parser import HTMLParser
from math import exp

import pytest
from msgspec.structs import replace

from losscli.judge.parts import Accuracy, JudgeReason, Speed
from losscli.judge.verdict import Verdict
from losscli.reasons import Code
from losscli.report.html.page import render_page, sections
from losscli.report.html.records import Verdicts
from losscli.runs.records import FAIL, SKIPPED, Error, Run, Seconds, Speedup, VerifyResult
from tests import handmade
from tests.handmade import case, failed, result, run, skipped

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\x00"


def sized(size, **changes):
    return case(shape=(size, size), target_shape=(size, size), **changes)


def measured(sizes=(64, 1024, 4096), losses=("mse",), samples=(0.9, 1.0, 1.0, 1.3)):
    """Return a bench of two implementations, which has everything that a panel shows."""
    found = []
    for loss in losses:
        for size in sizes:
            for pass_ in ("forward", "forward_backward"):
                for name, median in (("reference", size * 2e-6), ("custom", size * 1e-6)):
                    times = tuple(median * sample for sample in samples)
                    ratio = Speedup(2.0, 1.9, 2.1) if name == "custom" else None
                    found.append(
                        result(
                            name,
                            pass_,
                            case=sized(size, loss=loss),
                            seconds=Seconds(median, times[0], times[-1], times[0], times),
                            limit_gbps=80.0,
                            ratios={"reference": ratio} if ratio else {},
                        )
                    )
    made = run(*found)
    return replace(made, environment={**made.environment, "cpu_cache_bytes": 2**20})


def verified(*results):
    return replace(run(), kind="verify", results=results)


def check(name="value", status="pass", **changes):
    fields = {"case": case(), "implementation": "custom", "check": name, "status": status}
    return VerifyResult(**(fields | changes))


def page(**records):
    return render_page(sections(records), records)


def data_of(text):
    """Return the runs in the JSON of a page."""
    found = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)
    assert found
    return json.loads(found[1])["runs"]


def words(text):
    """Return what a page says, without markup, styles and scripts."""
    text = re.sub(r"<(style|script)\b.*?</\1>", " ", text, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]*>", " ", text).split())


class Elements(HTMLParser):
    """The elements of a page with their attributes, and the ids."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def of(self, tag):
        return [attributes for name, attributes in self.found if name == tag]


def test_bench_page_has_every_panel():
    text = page(base=measured())
    for name in ("verdict", "limit", "times", "speedups", "samples", "errors", "results", "cases"):
        assert f'<section id="{name}"' in text
    assert "custom is 2.00x as fast as the reference forward" not in text  # its ratio is 4.0
    assert "custom is 4.00x as fast as the reference forward" in words(text)


def test_page_is_one_file_without_addresses():
    text = page(base=measured())
    for tag, attributes in Elements(text).found:
        for name, value in attributes.items():
            if name in ("src", "href", "action", "srcset", "xlink:href"):
                assert value.startswith(("#", "data:")), (tag, value)
    assert not re.search(r"https?://|url\(|@import", text)


def test_ids_are_unique_and_links_lead_somewhere():
    text = page(base=measured(), new=measured(losses=("mse", "l1")))
    found = Elements(text).found
    ids = [attributes["id"] for _, attributes in found if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = {a["href"][1:] for a in Elements(text).of("a") if a["href"].startswith("#")}
    assert links <= set(ids)


def test_every_plot_is_named_for_those_who_do_not_see_it():
    text = page(base=measured())
    plots = [svg for svg in Elements(text).of("svg") if "aria-hidden" not in svg]
    assert len(plots) > 8
    for svg in plots:
        assert svg["role"] == "img"
    named = re.findall(r"<svg role=img [^>]*><title>[^<]+</title><desc>[^<]+</desc>", text)
    assert len(named) == len(plots)


def test_panels_with_plots_have_tables_behind_them():
    for panel in sections({"base": measured()})[0].panels:
        assert not panel.plots or panel.behind, panel.name


@pytest.mark.parametrize(
    "record",
    [
        replace(
            measured(),
            command=(HOSTILE,),
            environment={"cpu": HOSTILE, "device": "cpu", HOSTILE: HOSTILE},
            results=(
                result(HOSTILE, table=HOSTILE),
                result("reference", table=HOSTILE),
                failed(implementation=HOSTILE, reason=HOSTILE, pass_="forward_backward"),
                skipped(implementation="compile", reason=HOSTILE),
            ),
        ),
        verified(check(HOSTILE, FAIL, implementation=HOSTILE, reason=HOSTILE)),
        Verdicts(
            (
                Verdict(
                    id=HOSTILE,
                    file=HOSTILE,
                    word="CRASHED",
                    against=HOSTILE,
                    device=HOSTILE,
                    reasons=(
                        JudgeReason(Code.RAISED, "build", HOSTILE, HOSTILE, HOSTILE, HOSTILE),
                    ),
                    speed=(Speed(HOSTILE, HOSTILE, 1.0, {HOSTILE: (1.0, 0.9, 1.1)}),),
                    log=HOSTILE,
                ),
            ),
            command=(HOSTILE,),
            created=HOSTILE,
        ),
    ],
    ids=["bench", "verify", "judge"],
)
def test_names_of_a_record_are_no_markup(record):
    text = page(**{HOSTILE: record})
    elements = Elements(text)
    assert len(elements.of("script")) == 2
    assert elements.of("img") == []
    assert not any(name.startswith("on") for _, a in elements.found for name in a)
    assert "\x00" not in text
    assert "alert(1)" in words(text)
    data_of(text)


def test_hostile_names_are_no_markup_in_a_plot_of_its_own():
    made = replace(measured(), results=(result(HOSTILE), result("reference")))
    for plot in sections({"base": made})[0].plots:
        assert "<script" not in plot.standalone()
        assert "\x00" not in plot.standalone()


def test_data_holds_the_samples():
    text = page(base=measured(sizes=(64,)))
    [data] = data_of(text)
    row = dict(zip(data["columns"], data["rows"][0], strict=True))
    assert (data["cases"][row["case"]], row["median"]) == ("mse 64x64", 128e-6)
    steps = array("h", zlib.decompress(base64.b64decode(data["samples"]["data"])))
    assert data["samples"]["counts"] == [4, 4, 4, 4]
    found = [row["median"] * exp(step / 2048) for step in steps[:4]]
    assert found == pytest.approx([115.2e-6, 128e-6, 128e-6, 166.4e-6], rel=3e-4)


def test_500_cases_take_less_than_500_kilobytes():
    sizes = range(1000, 1500)
    made = measured(sizes, samples=(0.97, 0.98, 0.99, 1.0, 1.0, 1.0, 1.01, 1.02, 1.03, 1.04))
    made = replace(made, results=tuple(r for r in made.results if r.pass_ == "forward"))
    assert len(made.results) == 1000
    assert len(page(base=made).encode()) < 500_000


def test_script_takes_less_than_10_kilobytes():
    scripts = re.findall(r"<script>(.*?)</script>", page(base=measured()), re.DOTALL)
    assert 1000 < sum(map(len, scripts)) < 10_000


def test_panels_say_why_they_are_left_out():
    bare = result(speedup={}, gbps=None, error=Error())
    text = words(page(base=run(replace(bare, seconds=Seconds(1.0, 1.0, 1.0, 1.0, (1.0,))))))
    assert "the record has no limit of the memory" in text
    assert "no implementation was timed beside another" in text
    assert "no result has several samples" in text
    assert "the record has no errors" in text


@pytest.mark.parametrize("made", [run(), run(skipped()), run(failed())], ids=["no", "skip", "fail"])
def test_run_without_times_has_a_page(made):
    assert "no result has a time" in words(page(base=made))


def test_failures_are_shown_with_their_reason():
    text = words(page(base=run(*handmade.PAIR, failed(pass_="forward_backward"))))
    assert "1 result of custom failed" in text
    assert "FAILED mse 4096x4096 float32 mean, custom, forward+backward loss: 9 ulp" in text


def test_failed_check_stands_on_its_smallest_case_with_the_line_that_repeats_it():
    small = sized(7)
    text = words(
        page(
            run=verified(
                check(),
                check("coverage", FAIL, reason="tile 3 is not read"),
                check("coverage", FAIL, case=small, reason="tile 0", shrunk_from="mse 4096x4096"),
                check("streams", SKIPPED, reason="needs a GPU"),
            )
        )
    )
    assert "custom: 1 of 2 checks failed, in coverage of mse; 1 check skipped." in text
    assert "FAIL coverage, custom: mse 7x7 float32 mean" in text
    assert "tile 0. Shrunk from mse 4096x4096." in text
    assert "repeat(&quot;custom&quot;, &quot;coverage&quot;" in text.replace("&#34;", "&quot;")


def test_verdict_page_has_reasons_times_and_accuracy():
    verdict = Verdict(
        id="1",
        file="mine.py",
        word="SLOWER",
        against="mse",
        device="cpu",
        reasons=(JudgeReason(Code.SLOWER, "time", "1.2 times the time", case="mse 8x8"),),
        speed=(Speed("mse 8x8", "forward", 1e-3, {"reference": (0.83, 0.8, 0.86)}, 0.5, 1024),),
        accuracy=Accuracy(1.0, 2.0, 3.0, None, True),
        checks={"pass": 30, "fail": 0},
    )
    text = words(page(run=Verdicts((verdict,))))
    for told in (
        *("1.2 times the time. Smallest case: mse 8x8.", "1.00 ulp, PyTorch's own 2.00 ulp"),
        *("3.00 ulp", "30 pass", "0.83x (0.80-0.86)", "1.000 ms", "50.0", "1.0 KiB"),
    ):
        assert told in text.replace("&#39;", "'")


def test_several_bench_runs_are_compared_with_the_first():
    text = page(base=measured(), new=measured())
    assert "new against base: 12 rows, 12" in words(text)
    assert 'id="compared-changes"' in text


def test_two_implementations_never_share_a_place_in_the_legend():
    names = ["custom", "reference", "mine.py", "theirs.py"]
    labels = Elements(page(base=run(*(result(name) for name in names)))).of("label")
    assert [label["class"] for label in labels if "class" in label] == [
        f"impl s{index}" for index in (0, 1, 4, 5)
    ]


def test_run_without_results_has_a_page():
    assert "nothing" in words(page(base=Run(kind="verify")))
