"""On other operating systems commands without kernels work; the others give the reason."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# What Windows has not. Its own Python lacks more, but nothing that losscli asks for.
WINDOWS = """
import os, platform, signal, sys
for module, names in ((os, ("sched_getaffinity", "geteuid")), (signal, ("SIGHUP",))):
    for name in names:
        delattr(module, name)
sys.modules["fcntl"] = None
platform.system = lambda: "Windows"
from losscli.cli.main import run
sys.exit(run())
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WINDOWS, *arguments]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize(
    "arguments", [("--help",), ("list",), ("compare", "--help"), ("build", "--help")]
)
def test_help_and_list_work_on_every_platform(arguments):
    done = run(*arguments)
    assert (done.returncode, done.stderr) == (0, "")


def test_compare_works_on_every_platform():
    results = str(Path(__file__).parents[1] / "docs" / "results" / "cpu-peers-bench.json")
    done = run("compare", results, results)
    assert "Traceback" not in done.stderr
    assert done.returncode == 0, done.stderr


def test_build_on_an_unsupported_platform_names_alternatives():
    done = run("build")
    assert done.returncode == 4
    assert done.stderr == (
        "losscli: error: losscli's kernels are built on Linux only, and this is Windows. "
        "Use WSL 2.\n"
    )
