import base64
import html
import itertools
import json
import re
import textwrap
import zlib
from array import array
from html.parser import HTMLParser
from math import exp

import pytest
from msgspec.structs import replace

from losscli.judge.verdict import Verdict
from losscli.judge.verdict_parts import Accuracy, JudgeReason, Speed
from losscli.reasons import Code
from losscli.render.html.any_record import read_record
from losscli.render.html.page import render_page, sections
from losscli.report.verdict_writer import Verdicts
from losscli.runs.measurements import Error, Seconds, Speedup
from losscli.runs.records import FAIL, SKIPPED, Run, VerifyResult
from tests import handmade
from tests.documents import RESULTS
from tests.handmade import case, failed, result, run, skipped
from tests.parameters import naming, titled

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\x00"


def sized(size, **changes):
    return case(shape=(size, size), target_shape=(size, size), **changes)


def measured(sizes=(64, 1024, 4096), losses=("mse",), samples=(0.9, 1.0, 1.0, 1.3)):
    """Return a bench of two implementations, which has everything that a panel shows."""
    passes, found = ("forward", "forward_backward"), []
    for loss, size, pass_ in itertools.product(losses, sizes, passes):
        for name, median in (("reference", size * 2e-6), ("custom", size * 1e-6)):
            times = tuple(median * sample for sample in samples)
            ratios = {"reference": Speedup(2.0, 1.9, 2.1)} if name == "custom" else {}
            fields = {
                "case": sized(size, loss=loss),
                "seconds": Seconds(median, times[0], times[-1], times[0], times),
                "limit_gbps": 80.0,
                "ratios": ratios,
                "speedup": {name: ratio.value for name, ratio in ratios.items()},
            }
            found.append(result(name, pass_, **fields))
    made = run(*found)
    return replace(made, environment={**made.environment, "cpu_cache_bytes": 2**20})


def verified(*results):
    return replace(run(), kind="verify", results=results)


def check(name="value", status="pass", **changes):
    fields = {"case": case(), "implementation": "custom", "check": name, "status": status}
    return VerifyResult(**(fields | changes))


def page(**records):
    return render_page(sections(records))


def data_of(text):
    found = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)
    assert found
    return json.loads(found[1])["runs"]


def unpacked(text):
    return zlib.decompress(base64.b64decode(text))


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


def test_bench_page_has_the_answer_first_then_plots_with_words_then_the_table():
    text = page(base=measured())
    names = re.findall(r'<section id="([^"]+)"', text)
    plots_of = ["fraction-of-peak-bandwidth", "time-and-gb-s", "speedups", "samples-by-process"]
    assert names == ["result", *plots_of, "errors", "all-results", "environment"]
    answer = "forward: custom is 2.00x faster than eager PyTorch (reference, geometric mean of 3"
    assert answer in words(text)
    plots = [svg for svg in Elements(text).of("svg") if "aria-hidden" not in svg]
    assert len(plots) == 14
    assert {svg["role"] for svg in plots} == {"img"}
    named = re.findall(r'<svg role="img" [^>]*><title>[^<]+</title><desc>[^<]+</desc>', text)
    assert len(named) == len(plots)


def test_page_is_one_file_without_addresses():
    text = page(base=measured())
    for tag, attributes in Elements(text).found:
        for name, value in attributes.items():
            if name in ("src", "href", "action", "srcset", "xlink:href"):
                assert value.startswith(("#", "data:")), (tag, value)
    assert not re.search(r"https?://|url\((?!#)|@import", text)


def test_ids_are_unique_and_links_lead_somewhere():
    text = page(base=measured(), new=measured(losses=("mse", "l1")))
    ids = [attributes["id"] for _, attributes in Elements(text).found if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = {a["href"][1:] for a in Elements(text).of("a") if a["href"].startswith("#")}
    assert links <= set(ids)


REASON = JudgeReason(Code.RAISED, "build", HOSTILE, HOSTILE, HOSTILE, HOSTILE)
HOSTILE_RECORDS = {
    "bench": replace(
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
    "verify": replace(
        run(),
        kind="verify",
        results=(VerifyResult(case(), HOSTILE, HOSTILE, FAIL, reason=HOSTILE),),
    ),
    "judge": Verdicts(
        verdicts=(
            Verdict(
                *(HOSTILE, HOSTILE, "CRASHED", HOSTILE, HOSTILE),
                reasons=(REASON,),
                speed=(Speed(HOSTILE, HOSTILE, 1.0, {HOSTILE: (1.0, 0.9, 1.1)}),),
                log=HOSTILE,
            ),
        ),
        command=(HOSTILE,),
        created=HOSTILE,
    ),
}


def test_names_of_a_record_are_no_markup():
    for kind, record in HOSTILE_RECORDS.items():
        text = page(**{HOSTILE: record})
        elements = Elements(text)
        with naming(kind):
            assert len(elements.of("script")) == 2
            data_of(text)
            assert elements.of("img") == []
            assert not any(name.startswith("on") for _, a in elements.found for name in a)
            assert "\x00" not in text
            assert "alert(1)" in words(text)
    made = replace(measured(), results=(result(HOSTILE), result("reference")))
    for plot in sections({"base": made})[0].pictures:
        assert "<script" not in plot.standalone()
        assert "\x00" not in plot.standalone()


def test_data_holds_the_samples():
    text = page(base=measured(sizes=(64,)))
    [data] = data_of(text)
    rows = json.loads(unpacked(data["rows"]["data"]))
    row = dict(zip(data["columns"], rows[0], strict=True))
    assert (data["cases"][row["case"]], row["median"]) == ("mse 64x64", 128e-6)
    samples = unpacked(data["samples"]["data"])
    low, high = samples[:16], array("b", samples[16:])
    assert data["samples"]["counts"] == [4, 4, 4, 4]
    steps = [byte + 256 * above for byte, above in zip(low, high, strict=True)]
    found = [row["median"] * exp(step / 2048) for step in steps[:4]]
    assert found == pytest.approx([115.2e-6, 128e-6, 128e-6, 166.4e-6], rel=3e-4)


def test_many_cases_have_folded_plots_of_each_case():
    bench = measured(range(10, 30), losses=("mse", "l1", "log_cosh"))
    [section] = sections({"base": bench})
    names = {picture.name for picture in section.pictures}
    losses = ("mse", "l1", "log-cosh")
    assert names >= {f"speedup-forward-{loss}" for loss in losses}
    assert names >= {"limit-forward", *(f"limit-{loss}-float32-mean-forward" for loss in losses)}
    assert {"samples-1", "samples-2", "ulp-loss-forward", "ulp-gradient-forward"} <= names
    of_loss = {f"limit-{loss}-float32-mean-forward" for loss in losses}
    assert len({picture.frame for picture in section.pictures if picture.name in of_loss}) == 1
    text = page(base=bench)
    assert "<summary>All 60 cases, forward</summary>" in text
    slower = measured(range(10, 30), losses=("mse", "l1", "log_cosh"), samples=(0.9, 1.0, 1.4))
    compared = sections({"base": bench, "new": slower})[0]
    changes = {"changes-forward", *(f"changes-forward-{loss}" for loss in losses)}
    assert changes <= {picture.name for picture in compared.pictures}


def test_errors_of_a_verify_run_are_compared_with_those_of_pytorch():
    error, torch = Error(value_ulp=0.5), Error(value_ulp=0.0)
    [section] = sections({"run": verified(check(error=error, reference_error=torch))})
    [plot] = section.pictures
    assert plot.name == "ulp-loss"
    assert "custom: 0.50 ulp; reference: 0.01 ulp or less" in plot.description


def test_environment_has_the_ranges_of_the_gpu_while_it_was_timed():
    ranges = ((1.2e9, 1.4e9), (1.3e9, 1.5e9))
    results = [
        result("custom", pass_, conditions={"sm_clock_hz": each, "watts": 3})
        for pass_, each in zip(("forward", "forward_backward"), ranges, strict=True)
    ]
    said = words(page(base=run(*results)))
    assert "clock while timed 1200 to 1500 MHz" in said
    assert "power while timed" not in said


def test_page_is_small():
    scripts = re.findall(r"<script>(.*?)</script>", page(base=measured()), re.DOTALL)
    assert 1000 < sum(map(len, scripts)) < 6_000
    samples = (0.97, 0.98, 0.99, 1.0, 1.0, 1.0, 1.01, 1.02, 1.03, 1.04)
    made = measured(range(1000, 1250), samples=samples)
    made = replace(made, results=tuple(r for r in made.results if r.pass_ == "forward"))
    assert len(made.results) == 500
    assert len(page(base=made).encode()) < 200_000


@pytest.mark.parametrize(
    "record", ["h200-peers-bench", "h200-rows-bench", "h200-sizes-bench", "h200-thorough-verify"]
)
def test_page_of_a_large_record_is_below_half_a_megabyte(record):
    found = sections({record: read_record(RESULTS / f"{record}.json")})
    assert 20_000 < len(render_page(found).encode()) < 500_000


ONE_SECOND = Seconds(1.0, 1.0, 1.0, 1.0, (1.0,))
VERDICT = Verdict(
    *("1", "mine.py", "SLOWER", "mse", "cpu"),
    reasons=(JudgeReason(Code.SLOWER, "time", "1.2 times the time", case="mse 8x8"),),
    speed=(Speed("mse 8x8", "forward", 1e-3, {"reference": (0.83, 0.8, 0.86)}, 0.5, 1024),),
    accuracy=Accuracy(1.0, 2.0, 3.0, None, True),
    checks={"pass": 30, "fail": 0},
)
PAGES = {
    "panels left out": {
        "base": run(result(speedup={}, gbps=None, error=Error(), seconds=ONE_SECOND))
    },
    "no results": {"base": run()},
    "no checks": {"base": Run(kind="verify")},
    "all skipped": {"base": run(skipped())},
    "all failed": {"base": run(failed())},
    "a failure": {"base": run(*handmade.PAIR, failed(pass_="forward_backward"))},
    "failed checks": {
        "run": verified(
            check(),
            check("coverage", FAIL, reason="tile 3 is not read"),
            check("coverage", FAIL, case=sized(7), reason="tile 0", shrunk_from="mse 4096x4096"),
            check("streams", SKIPPED, reason="needs a GPU"),
        )
    },
    "verdicts": {"run": Verdicts(verdicts=(VERDICT,))},
    "several runs": {"base": measured((64,)), "new": measured((64,))},
}


def test_words_of_pages_are_as_in_the_golden_file(golden):
    said = {name: html.unescape(words(page(**records))) for name, records in PAGES.items()}
    golden("html_pages.txt", titled({n: textwrap.fill(text, 100) for n, text in said.items()}))
    assert 'id="compared-result"' in page(**PAGES["several runs"])


def test_two_implementations_never_share_a_place_in_the_legend():
    names = ["custom", "reference", "mine.py", "theirs.py"]
    labels = Elements(page(base=run(*(result(name) for name in names)))).of("label")
    assert [label["class"] for label in labels if "class" in label] == [
        f"impl s{index}" for index in (0, 1, 4, 5)
    ]
