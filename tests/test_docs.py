"""The documents follow the program."""

import re
from pathlib import Path

import pytest

from losscli.cli.main import COMMANDS
from losscli.config.loader import shipped_configs
from losscli.losses import LOSSES

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"


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
