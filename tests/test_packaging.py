import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import losscli
from losscli.cli import main

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOWS = {path.name: path.read_text() for path in (ROOT / ".github/workflows").glob("*.yml")}
# The workflow to copy stands in the documents.
(COPIED,) = re.findall(
    r"```yaml\n(name: losses\n.*?)```", (ROOT / "docs/comparing.md").read_text(), re.S
)
ALL_WORKFLOWS = WORKFLOWS | {"docs/comparing.md": COPIED}


def steps(text: str) -> Iterator[dict[str, Any]]:
    # `on` is a key, not YAML 1.1's true.
    workflow = yaml.load(text, Loader=yaml.BaseLoader)
    assert {"name", "on", "jobs"} <= workflow.keys()
    for job in workflow["jobs"].values():
        assert {"runs-on", "timeout-minutes"} <= job.keys()
        yield from job["steps"]


def commands(text: str) -> Iterator[list[str]]:
    variables = dict(re.findall(r"^ +([A-Z]+): (.*)$", text, re.MULTILINE))
    for step in steps(text):
        for line in step.get("run", "").splitlines():
            for name, value in variables.items():
                line = line.replace(f"${name}", value)
            yield shlex.split(line)


@pytest.mark.parametrize("name", ALL_WORKFLOWS)
def test_steps_of_a_workflow_either_run_or_use_and_their_commands_exist(name):
    found = list(steps(ALL_WORKFLOWS[name]))
    assert found
    for step in found:
        assert ("run" in step) != ("uses" in step), step
        # A version, not a branch that may change.
        assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step.get("uses", "a/b@v1"))
    targets = re.findall(r"^([a-z-]+):.* ## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    known = 0
    for words in commands(ALL_WORKFLOWS[name]):
        if words[0] == "make":
            assert set(words[1:]) <= set(targets)
            known += 1
        if Path(words[0]).name == "losscli" and words[1] in main.COMMANDS:
            check_options(words[1:])
            known += 1
    assert known


def check_options(words: list[str]) -> None:
    context = main.group.make_context("losscli", [], resilient_parsing=True)
    command = main.group.get_command(context, words[0])
    assert command
    options = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    assert {word for word in words[1:] if word.startswith("-") and word != "-"} <= options


def test_tested_versions_of_python_are_the_declared_ones():
    prefix = "Programming Language :: Python :: 3."
    declared = [c.removeprefix(prefix) for c in PROJECT["project"]["classifiers"] if prefix in c]
    matrix = yaml.safe_load(WORKFLOWS["ci.yml"])["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert matrix == [f"3.{minor}" for minor in declared]
    assert PROJECT["project"]["requires-python"] == f">={matrix[0]}"


def test_all_that_the_wheel_takes_along_exists():
    targets = PROJECT["tool"]["hatch"]["build"]["targets"]
    for name in (*targets["wheel"]["force-include"], *targets["sdist"]["include"]):
        assert (ROOT / name.lstrip("/")).exists(), name
    assert (ROOT / "losscli" / "py.typed").exists()  # its types are for users as well


def test_every_requirement_has_a_tested_version():
    pinned = {
        re.split("[=<>]", line)[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line and not line.startswith("#")
    }
    project = PROJECT["project"]
    required = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    names = {re.split(r"[=<>\[; ]", line)[0].lower() for line in required}
    assert names <= pinned


def test_container_installs_every_dependency_before_the_sources():
    first, *_ = re.findall(r"pip install (.*?)\nCOPY", (ROOT / "Dockerfile").read_text(), re.S)
    project = PROJECT["project"]
    required = [*project["dependencies"], *project["optional-dependencies"]["gpu"]]
    assert {re.split(r"[=<>]", line)[0] for line in required} <= set(first.split())


def test_version_is_the_same_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == losscli.__version__
    released = re.findall(r"^## \[(\d.*?)\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert released[0] == (losscli.__version__, str(citation["date-released"]))
