"""The documents follow the program."""

import importlib.util
import re
from pathlib import Path

import pytest

from losscli.cli.main import COMMANDS
from losscli.config.loader import shipped_configs
from losscli.losses import LOSSES

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
RESULTS = ROOT / "docs" / "results"


@pytest.mark.parametrize("command", COMMANDS)
def test_readme_shows_every_command(command):
    assert f"losscli {command}" in README.read_text()


@pytest.mark.parametrize("config", shipped_configs())
def test_readme_names_every_config(config):
    assert f"{config}.yaml" in README.read_text()


@pytest.mark.parametrize("loss", LOSSES)
def test_readme_names_every_loss(loss):
    assert f"{loss}_loss" in README.read_text()


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md"])
def test_a_make_target_that_is_named_exists(document):
    targets = re.findall(r"^([a-z-]+):.* ## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = re.findall(r"(?:^\s*|`)make ([a-z-]+)", (ROOT / document).read_text(), re.MULTILINE)
    assert named
    assert set(named) <= set(targets)


def test_the_readme_shows_the_measured_results():
    spec = importlib.util.spec_from_file_location("tables", ROOT / "docs" / "tables.py")
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    assert README.read_text() == tables.with_tables(README.read_text())
    assert "| smooth_l1 32768x32768 |" in README.read_text()


def test_every_result_is_listed_with_the_commit_that_made_it():
    listed = dict(
        re.findall(r"^\| (\S+\.json) \|.*\| (\w+) \|$", (RESULTS / "README.md").read_text(), re.M)
    )
    assert set(listed) == {path.name for path in RESULTS.glob("*.json")}
    assert all(re.fullmatch(r"[0-9a-f]{7,40}", commit) for commit in listed.values())
