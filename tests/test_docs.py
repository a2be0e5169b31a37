import ast
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace

import click
import pytest
from msgspec import convert

import losscli
from docs import ages, tables
from losscli.cli import main
from losscli.cli.main import COMMANDS
from losscli.config.check_names import ADVICE, CATCHES
from losscli.config.loader import shipped_configs
from losscli.doctor.probes import PROBES
from losscli.judge.verdict_parts import RIGHT_WORDS, JudgeReason
from losscli.losses import EVERY_LOSS, EVERY_ROW_LOSS, LOSSES
from losscli.reasons import Code
from losscli.runs.former_names import updated
from losscli.verify.checks import CHECKS
from tests.documents import RESULTS, ROOT
from tests.judging import RIGHT, WRONG, verdict
from tests.parameters import naming

DOCS = ROOT / "docs"


def test_documents_name_every_command_config_check_probe_and_loss():
    def lacking(document, words, names):
        text = (ROOT / document).read_text()
        return [name for name in names if words.format(name) not in text]

    functions = [EVERY_LOSS[loss].function_name for loss in (*LOSSES, *EVERY_ROW_LOSS)]
    assert lacking("README.md", "losscli {}", COMMANDS) == []
    assert lacking("docs/reference.md", "{}.yaml", shipped_configs()) == []
    assert lacking("docs/reference.md", "| `{}` |", CHECKS) == []
    assert lacking("docs/training-code.md", "| `{}` |", functions) == []
    rows = re.findall(r"^\| (\w+) \| (.+?) \|", (DOCS / "reference.md").read_text(), re.M)
    described = {(area, name) for area, names in rows for name in names.split(", ")}
    assert {(probe.area, probe.name) for probe in PROBES} <= described


def test_fields_of_checks_read_without_torch_match_the_checks():
    assert list(CATCHES.items()) == [(check.name, check.catches) for check in CHECKS.values()]
    assert list(ADVICE.items()) == [(check.name, check.advice) for check in CHECKS.values()]


def test_a_make_target_that_is_named_exists():
    targets = re.findall(r"^([a-z-]+):.* ## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for document in ("README.md", "CONTRIBUTING.md"):
        text = (ROOT / document).read_text()
        named = re.findall(r"(?:^\s*|`)make ([a-z-]+)", text, re.MULTILINE)
        assert named
        assert set(named) <= set(targets)


@pytest.mark.parametrize("document", tables.DOCUMENTS, ids=lambda path: path.name)
def test_a_document_shows_the_measured_results(document):
    text = document.read_text()
    assert text.count("<!--") == 2 * len(tables.MARKER.findall(text)) > 0
    try:
        assert text == tables.with_tables(text)
    except ages.NoHistoryError as error:
        pytest.skip(f"which records are older than the kernels is not known: {error}")


@pytest.mark.parametrize("document", tables.DOCUMENTS, ids=lambda path: path.name)
def test_each_item_of_a_list_begins_a_line(document):
    assert re.findall(r"[.;] - [`*A-Z].*", document.read_text()) == []


def assert_holds(whole, part):
    """Compare records; older records lack the fields that came later."""
    if isinstance(part, dict):
        for key, value in part.items():
            assert_holds(whole[key], value)
    elif isinstance(part, list) and part and isinstance(part[0], dict):
        for ours, theirs in zip(whole, part, strict=True):
            assert_holds(ours, theirs)
    else:
        assert whole == part


@pytest.mark.slow  # it reads all of them
def test_a_record_is_read_as_it_was_written():
    def with_its_present_name(each):
        return each | {"code": convert(each["code"], Code)} if "code" in each else each

    for path in RESULTS.glob("*-bench.json"):
        written = json.loads(path.read_text(), object_hook=with_its_present_name)
        assert_holds(tables.load(path).to_json(), updated(written))


def test_every_test_that_holds_a_promise_about_transforms_exists():
    text = (DOCS / "training-code.md").read_text().partition("## What works with PyTorch\n")[2]
    held = re.findall(r"`(\w+\.py)::(\w+)` \|$", text, re.MULTILINE)
    heads = text.count("| test |\n| --- |")
    assert len(held) == len(re.findall(r"^\| ", text, re.MULTILINE)) - 2 * heads > 0
    for file, function in held:
        assert f"\ndef {function}(" in (ROOT / "tests" / "kernels" / file).read_text()


TEXT = (ROOT / "docs" / "guide.md").read_text()


def test_guide_is_the_document(capsys):
    assert main.run(["guide"]) == 0
    assert capsys.readouterr().out == TEXT


def test_rules_are_numbered_and_nearly_all_have_a_command():
    rules = re.split(r"^\*\*\d+\. ", TEXT.partition("## For a model")[0], flags=re.MULTILINE)[1:]
    numbers = re.findall(r"^\*\*(\d+)\. ", TEXT, re.MULTILINE)
    assert numbers == [str(n) for n in range(1, len(rules) + 1)]
    assert [rule[:20] for rule in rules if "    losscli " not in rule] == ["Time controls in the"]


def test_commands_of_the_guide_are_accepted(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernel.py").write_text("def mse_loss(input, target): ...\n")
    for line in re.findall(r"^    (losscli .*)$", TEXT, re.MULTILINE):
        _, name, *arguments = shlex.split(line)
        context = click.Context(main.group, info_name="losscli")
        with naming(line):
            main.group.get_command(context, name).make_context(name, arguments, context)


EXAMPLES = Path(__file__).parents[1] / "examples"
PROPOSAL = re.compile(r"\d+: (?P<word>[A-Z ]+), (?P<milliseconds>[\d.]+) ms, (?P<parts>.*)")


@pytest.mark.slow
def test_the_search_ends_with_the_fastest_of_its_right_kernels(tmp_path):
    own = {"LOSSCLI_DATA_DIR": str(tmp_path), "LOSSCLI_DEVICE": "cpu"}
    done = subprocess.run(
        [sys.executable, EXAMPLES / "search.py", "4", "1"],
        env=os.environ | own,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    proposals = [found.groupdict() for found in PROPOSAL.finditer(done.stdout)]
    right = [each for each in proposals if each["word"] in RIGHT_WORDS]
    assert len(right) < len(proposals) == 4, done.stdout
    best = min(right, key=lambda each: float(each["milliseconds"]))
    kernel = done.stdout.rpartition("import torch\n")[2]
    assert all(part in kernel for part in ast.literal_eval(best["parts"])), done.stdout


UNJUDGED = verdict(
    "NOT JUDGED", reasons=(JudgeReason(Code.INSUFFICIENT_MEMORY, "time", "no memory"),)
)


@dataclass
class EvaluationResult:
    """OpenEvolve's."""

    metrics: dict[str, float]
    artifacts: dict[str, str] = field(default_factory=dict)


@pytest.fixture
def example(monkeypatch):
    """Return a function that runs an example whose judge has a verdict; it returns its names."""
    modules: dict[str, dict[str, type]] = {
        "openevolve.evaluation_result": {"EvaluationResult": EvaluationResult},
        "kernelbench.eval": {"KernelExecResult": SimpleNamespace},
    }
    for name, members in modules.items():
        for part in (name.partition(".")[0], name):
            monkeypatch.setitem(sys.modules, part, module := ModuleType(part))
        vars(module).update(members)
    monkeypatch.setenv("LOSSCLI_JUDGE_LOSS", "mse")

    def run(name, found, *arguments):
        monkeypatch.setattr(losscli, "judge", lambda *given, **more: found, raising=False)
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        return SimpleNamespace(**runpy.run_path(str(ROOT / "examples" / f"{name}.py")))

    return run


def test_openevolve_gets_a_score_and_texts_and_tries_again_what_was_not_judged(example):
    right = example("openevolve", RIGHT).evaluate("k.py")
    assert right.metrics["combined_score"] == pytest.approx((1.8 * 2.4) ** 0.5)
    assert right.artifacts["verdict"] == "RIGHT"
    wrong = example("openevolve", WRONG).evaluate_stage1("k.py")
    assert wrong.metrics == {"combined_score": 0.0, "correct": 0.0}
    assert wrong.artifacts["feedback"] == WRONG.feedback
    with pytest.raises(RuntimeError, match="No memory"):
        example("openevolve", UNJUDGED).evaluate("k.py")


def test_kernelbench_gets_its_result_or_none(example):
    def judged(found):
        return example("kernelbench", found).eval_kernel_against_ref("model", "new", device=0)

    right, wrong = judged(RIGHT), judged(WRONG)
    assert (right.compiled, right.correctness) == (True, True)
    assert right.runtime == 1e3 * RIGHT.speed[0].seconds
    assert (wrong.correctness, wrong.metadata["correctness_issue"]) == (False, WRONG.feedback)
    assert judged(UNJUDGED) is None


def test_shinkaevolve_finds_its_two_files(example, tmp_path):
    given = ("--program_path=k", f"--results_dir={tmp_path}", "--loss=mse")
    for found, error in ((RIGHT, None), (WRONG, WRONG.feedback)):
        example("shinkaevolve", found, *given)
        record = json.loads((tmp_path / "correct.json").read_text())
        assert record == {"correct": error is None, "error": error}
        metrics = json.loads((tmp_path / "metrics.json").read_text())
        assert (metrics["combined_score"] > 0) == (error is None)
