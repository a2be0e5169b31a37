"""The documentation builds without a warning, names everything, works without a network."""

import re
import shlex
import subprocess
import sys

import click
import pytest

import losscli.functional
import losscli.nn
from docs.pages import commands, losses, plots, records
from docs.pages.svg import axis_over
from losscli.cli.main import group
from losscli.files.record import Record
from losscli.losses import EVERY_ROW_LOSS, LOSSES
from losscli.runs.reading import read_run
from losscli.runs.records import BenchResult
from tests.documents import RESULTS, ROOT
from tests.parameters import naming

DOCS = ROOT / "docs"
SPECS = LOSSES | {name: spec for name, spec in EVERY_ROW_LOSS.items() if not spec.form_of}
WRITTEN = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build the site once, with warnings as errors; return its folder."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    command += ["-d", str(folder / "doctrees"), str(DOCS), str(folder / "html")]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (built.returncode, built.stderr) == (0, "")
    return folder / "html"


@pytest.mark.slow
def test_pages_load_nothing_from_a_network_and_name_every_function_and_module(site):
    pages = sorted(site.rglob("*.html"))
    assert {page.name for page in pages} >= {
        "index.html",
        "losses.html",
        "api.html",
        "training.html",
    }
    loaded = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=["'](?:https?:)?//""")
    for page in pages:
        assert not loaded.search(page.read_text()), page.name
    for style in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", style.read_text()), style
    text = (site / "generated" / "api.html").read_text()
    for module in (losscli.functional, losscli.nn):
        for name in module.__all__:
            assert f'id="{module.__name__}.{name}"' in text


def test_every_option_says_what_it_does_on_the_page_of_commands():
    page = commands.page()
    for command, of in commands.every_command():
        section = page.split(f"\n## {command}\n")[1].split("\n## ")[0]
        options = (each for each in of.params if isinstance(each, click.Option))
        for option in (each for each in options if not each.hidden):
            name = option.opts[-1]
            assert re.search(rf"^`[^`]*{re.escape(name)}\b", section, re.M), f"{command} {name}"
            assert option.help, f"{command} {name} has no help text"


def test_every_loss_has_formula_picture_and_operands():
    page = losses.page()
    for name, spec in SPECS.items():
        entry = page.split(f"\n### {name}\n")[1].split("\n### ")[0]
        assert spec.formula in entry
        assert entry.count("<polyline") == 2, name
        assert all(f"`{operand.name}`" in entry for operand in spec.operands), name
        assert all(f"`{parameter.name}`" in entry for parameter in spec.parameters), name


def test_a_picture_shows_the_loss_and_its_gradient():
    x, operands, _ = losses._over_elements(LOSSES["mse"])
    assert x[0] == operands[0][0] == -losses.REACH
    assert operands[1].eq(0).all()


def test_the_page_of_results_has_every_key_of_a_record():
    def keys(record):
        return [key for key, _, _ in records.fields_of(record)]

    for record in records.RECORDS:
        table = records.page().split(f"\n## {record.__name__}\n")[1].split("\n## ")[0]
        assert re.findall(r"^\| `(\w+)` \|", table, re.M) == keys(record)
    run = read_run(RESULTS / "cpu-peers-bench.json", "bench")
    result = run.results[0]
    assert isinstance(result, BenchResult)
    assert result.seconds is not None
    held: list[Record] = [run, result, result.case, result.seconds]
    for each in held:
        of_ranks = {"ranks", "placement", "collective"}  # an ordinary record has none of them
        assert set(each.to_json()) == set(keys(type(each))) - of_ranks


def test_plots_show_both_passes_of_each_loss_of_the_record():
    text = plots.page()
    for loss in ("hinge", "mse", "smooth_l1"):
        for words in plots.PASSES.values():
            assert f"### {loss}, {words}\n" in text


def test_an_axis_has_round_ticks_and_holds_every_value():
    axis = axis_over("", [-0.3, 4.2])
    assert (axis.low, axis.high) == (-1.0, 5.0)
    assert [label for _, label in axis.ticks] == ["-1", "0", "1", "2", "3", "4", "5"]


def command_lines():
    """Return each call of losscli in a document, in an indented block or in one of a console."""
    for path in WRITTEN:
        text = re.sub(r" *\\\n\s*", " ", path.read_text())
        for line in re.findall(r"^(?:    (?:\$ )?|\$ )(losscli .*)$", text, re.M):
            if not line.startswith("losscli: "):
                yield path.name, line


def test_every_command_in_a_document_is_one_that_losscli_takes():
    for document, line in command_lines():
        try:
            parse(line)
        except click.UsageError as error:
            pytest.fail(f"{document}: {line}: {error.format_message()}")


def parse(line):
    words = shlex.split(line, comments=True)[1:]
    words = words[: next((i for i, w in enumerate(words) if w in {"|", ">", "&&"}), len(words))]
    assert words, line
    context = click.Context(group, info_name="losscli", **group.context_settings)
    if words[0].startswith("-"):
        group.make_parser(context).parse_args(words)
        return
    command = group.get_command(context, words[0])
    assert command is not None, line
    command.make_parser(click.Context(command, context)).parse_args(words[1:])


def test_python_of_documents_is_valid_and_the_examples_for_training_code_run():
    for path in WRITTEN:
        for language, text in FENCE.findall(path.read_text()):
            if language == "python":
                with naming(path.name, text):
                    code = compile(text, path.name, "exec")
                    if path.name == "training-code.md":
                        exec(code, {})
