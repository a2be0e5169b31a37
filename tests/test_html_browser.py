import re
from pathlib import Path

import pytest

from losscli.judge.verdict import Verdict
from losscli.render.html.any_record import read_record
from losscli.render.html.page import render_page, sections
from losscli.report.verdict_writer import Verdicts
from losscli.runs.records import FAIL
from tests import browser
from tests.documents import RESULTS
from tests.handmade import run
from tests.test_html_page import check, measured, verified

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(browser.missing()), reason=browser.missing()),
]

SCRIPTS = Path(__file__).parent / "data" / "browser"
ROWS = "[...document.querySelectorAll('#all-results tbody tr')]"
SHOWN = f"return {ROWS}.filter(row => row.checkVisibility()).map(row => row.innerText)"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    records = {"base": measured(losses=("mse", "l1"))}
    page = tmp_path_factory.mktemp("page") / "page.html"
    page.write_text(render_page(sections(records)))
    return page


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with browser.browser(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture
def opened(chromium, path):
    chromium.resize(1280, 900)
    chromium.theme("light")
    chromium.open(path)
    yield chromium
    assert chromium.messages() == []


def test_pages_of_every_kind_have_no_error(chromium, tmp_path):
    verdict = Verdict(id="a", file="mine.py", word="RIGHT", against="mse", device="cpu")
    page = tmp_path / "page.html"
    for records in (
        {"run": verified(check(), check("coverage", FAIL, reason="wrong"))},
        {"run": Verdicts(verdicts=(verdict,))},
        {"base": measured(), "new": measured()},
        {"base": run()},
    ):
        page.write_text(render_page(sections(records)))
        chromium.open(page)
        assert chromium.run("return document.querySelectorAll('h3').length") > 1
        assert chromium.messages() == []


def test_page_loads_nothing_else(opened):
    loaded = opened.run("return performance.getEntriesByType('resource').map(each => each.name)")
    assert [name for name in loaded if not name.startswith("data:")] == []


def test_filter_keeps_rows_that_have_all_words(opened):
    assert len(opened.run(SHOWN)) == 24
    fill = "const q = document.getElementById('q'); q.value = arguments[0]; q.oninput();"
    opened.run(fill, "L1 1024 fwd+bwd")
    shown = opened.run(SHOWN)
    assert len(shown) == 2
    assert all(row.startswith("l1 1024x1024") for row in shown)
    assert opened.run("return document.getElementById('n').textContent") == "2 of 24 rows"
    opened.run(fill, "")
    assert len(opened.run(SHOWN)) == 24


def test_unchecked_implementation_is_hidden_in_tables_and_plots(opened):
    opened.run("document.getElementById('show1').click()")
    assert all("custom" in row for row in opened.run(SHOWN))
    marks = "[...document.querySelectorAll('#fraction-of-peak-bandwidth svg g.s1')]"
    assert opened.run(f"return {marks}.every(mark => getComputedStyle(mark).display === 'none')")


def test_header_sorts_by_value_in_its_unit_and_says_so(opened):
    head = "document.querySelectorAll('#all-results thead th')[3]"
    medians = f"return {ROWS}.map(row => row.cells[3].textContent)"
    for order, direction in ((1, "ascending"), (-1, "descending")):
        opened.run(f"{head}.querySelector('button').click()")
        found = [seconds(text) for text in opened.run(medians)]
        assert found == sorted(found)[::order]
        assert found[0] != found[-1]
        assert opened.run(f"return {head}.getAttribute('aria-sort')") == direction


def seconds(text):
    number, unit = text.split()
    return float(number) * {"us": 1e-6, "ms": 1e-3, "s": 1.0}[unit]


def test_samples_are_saved_as_csv(opened):
    save = """
    const made = new Promise(done => { URL.createObjectURL = blob => (done(blob.text()), '#'); });
    document.getElementById('save').click();
    return made;
    """
    header, first, *others = opened.run(save).splitlines()
    assert header == '"run","case","pass","implementation","seconds"'
    assert first.startswith('"base","mse 64x64","fwd","reference","0.000115')
    assert len(others) == 24 * 4 - 1


def test_mark_shows_its_figures_when_pointed_at(opened):
    opened.run(
        "document.querySelector('#fraction-of-peak-bandwidth .hit').dispatchEvent("
        "new PointerEvent('pointerover', {bubbles: true, clientX: 9, clientY: 9}))"
    )
    told = opened.run("const t = document.getElementById('tip'); return t.hidden || t.textContent")
    assert re.fullmatch(r"(custom|reference), \d+x\d+: \d+\.\d %", told)


def test_page_is_not_wider_than_the_screen_and_its_text_has_contrast(opened):
    for width in (360, 768, 1280):
        opened.resize(width, 800)
        assert opened.run("return document.documentElement.scrollWidth") <= width
    for theme in ("light", "dark"):
        opened.theme(theme)
        assert opened.run((SCRIPTS / "contrast.js").read_text()) == []


def test_paper_is_light_and_keeps_the_legend(opened):
    opened.cdp("Emulation.setEmulatedMedia", media="print", features=[DARK])
    ground = "return getComputedStyle(document.body).backgroundColor"
    assert opened.run(ground) == "rgb(255, 255, 255)"
    assert opened.run("return document.querySelector('.impl').checkVisibility()")
    assert not opened.run("return document.getElementById('q').checkVisibility()")


@pytest.mark.parametrize(
    "record", ["h200-rows-bench", "h200-peers-bench", "cpu-losses-bench", "h200-thorough-verify"]
)
def test_words_of_no_plot_run_into_each_other(chromium, tmp_path, record):
    records = {"run": read_record(RESULTS / f"{record}.json")}
    (tmp_path / "page.html").write_text(render_page(sections(records)))
    chromium.open(tmp_path / "page.html")
    plots, found = chromium.run((SCRIPTS / "words_apart.js").read_text())
    assert (plots > 1, found) == (True, [])


DARK = {"name": "prefers-color-scheme", "value": "dark"}


def test_sections_are_reached_by_keyboard_and_named(opened):
    unnamed = """return [...document.querySelectorAll('[tabindex], button, input')]
      .filter(e => !(e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.length))
      .map(e => e.outerHTML.slice(0, 80))"""
    assert opened.run(unnamed) == []
