"""On other operating systems commands without kernels work; the others give the reason."""

from pathlib import Path

import pytest

from tests.without_torch import run_after

# What Windows has not. Its own Python lacks more, but nothing that losscli asks for.
WINDOWS = """
import platform, signal
for module, names in ((os, ("sched_getaffinity", "geteuid")), (signal, ("SIGHUP",))):
    for name in names:
        delattr(module, name)
sys.modules["fcntl"] = None
platform.system = lambda: "Windows"
"""
RESULTS = str(Path(__file__).parents[1] / "docs" / "results" / "cpu-peers-bench.json")
REFUSAL = (
    "losscli: error: losscli's kernels are built on Linux only, and this is Windows. Use WSL 2.\n"
)


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["list"], 0, ""),
        (["build", "--help"], 0, ""),
        (["compare", RESULTS, RESULTS], 0, None),
        (["build"], 4, REFUSAL),
    ],
)
def test_commands_without_kernels_work_on_every_platform(arguments, code, told):
    done = run_after(WINDOWS, *arguments)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert told in (None, done.stderr)
