import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from losscli.cli import main
from losscli.cli.completion import SHELLS
from losscli.config.loader import shipped_configs
from losscli.errors import EXIT_OK
from losscli.losses import EVERY_LOSS
from tests.without_torch import run_without_torch

ROOT = Path(__file__).parents[1]


@pytest.fixture
def types():
    """The types of the items that were completed: ``plain`` or ``file``."""
    return set()


@pytest.fixture
def complete(monkeypatch, types):
    """Return a function that completes a line as bash does; it returns the plain values."""

    def complete(line, word=None):
        monkeypatch.setenv("_LOSSCLI_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_LINE", line)
        monkeypatch.setenv("COMP_WORD", line.rpartition(" ")[2] if word is None else word)
        result = run_without_torch()
        assert (result.returncode, result.stderr) == (EXIT_OK, "")
        items = [item.partition(",") for item in result.stdout.splitlines()]
        types.update(type for type, _, _ in items)
        return [value for type, _, value in items if type == "plain"]

    return complete


COMPLETED: dict[str, list[str]] = {
    "losscli be": ["bench"],
    "losscli ": list(main.COMMANDS),
    "losscli verify --qui": ["--quick", "--quiet"],
    "losscli bench --loss smo": ["smooth_l1"],
    "losscli verify --check grad": ["gradients"],
    "losscli bench --dtype float32,bf": ["float32,bfloat16"],
    "losscli list ch": ["checks"],
    "losscli judge --format ": ["table", "json", "jsonl"],
    "losscli bench --size 8y --loss hing": ["hinge"],  # a wrong value does not stop it
}
SPLIT = {  # where bash splits words
    "losscli bench --dtype=bf": ("bf", ["bfloat16"]),
    "losscli bench --impl custom:at": ("at", ["atomic"]),
    "losscli bench --impl=custom:at": ("at", ["atomic"]),
}


def test_commands_options_and_values_are_completed(complete):
    for line, values in COMPLETED.items():
        assert complete(line) == values, line
    for line, (word, values) in SPLIT.items():
        assert complete(line, word) == values, line
    assert "atomic" in complete("losscli bench --impl custom:", word=":")
    groups = {"all", "weighted", "rows", "linear"}
    assert set(complete("losscli bench --loss ")) == {*groups, *EVERY_LOSS}


def test_files_are_completed_beside_configs_and_saved_runs(complete, types, monkeypatch, tmp_path):
    assert complete("losscli judge my") == []
    assert types == {"file"}
    types.clear()
    assert complete("losscli bench -c ") == list(shipped_configs())
    assert "file" in types
    monkeypatch.setenv("LOSSCLI_DATA_DIR", str(tmp_path))
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "before.jsonl").touch()
    assert complete("losscli compare be") == ["before"]


@pytest.fixture
def environ(tmp_path):
    program = tmp_path / "bin" / "losscli"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m losscli "$@"\n')
    program.chmod(0o755)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("LOSSCLI", "COMP"))}
    return {**kept, "PATH": f"{program.parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}


SCRIPTS = {
    "bash": """
        eval "$(losscli completion bash)"
        complete -p losscli
        COMP_LINE="losscli bench --impl custom:at"; COMP_POINT=${#COMP_LINE}
        COMP_WORDS=(losscli bench --impl custom : at); COMP_CWORD=5
        _losscli_completion losscli
        echo "found ${COMPREPLY[*]}"
    """,
    "zsh": """
        autoload -U compinit && compinit -D
        eval "$(losscli completion zsh)"
        _path_files() { : }
        compadd() { [ "$4" = -a ] && echo found $completions }
        words=(losscli bench --impl custom:at); CURRENT=4
        _losscli_completion
    """,
    "fish": """
        losscli completion fish | source
        echo found (complete -C "losscli bench --impl custom:at")
    """,
}


@pytest.mark.parametrize("shell", SHELLS)
def test_real_shell_completes(environ, shell):
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    command = [shell, "-c", SCRIPTS[shell]]
    result = subprocess.run(
        command, capture_output=True, text=True, env=environ, timeout=60, check=False
    )
    assert "found " in result.stdout, result.stderr
    assert "atomic" in result.stdout.partition("found ")[2]


def test_completion_script_needs_no_torch():
    for shell in SHELLS:
        result = run_without_torch("completion", shell)
        assert (result.returncode, result.stderr) == (EXIT_OK, ""), shell
        assert "_LOSSCLI_COMPLETE" in result.stdout, shell
