import os
import subprocess
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
KILL = """
import os, signal
try:
    os.kill(os.getpid(), signal.{})
except KeyboardInterrupt:
    pass  # as numpy's import within torch's does
__version__ = "2.13.0"
"""


@pytest.fixture
def interrupted(tmp_path):
    """Return a function that runs losscli with a module whose import sends it a signal."""

    def run(module, name, *arguments):
        (tmp_path / module).mkdir()
        (tmp_path / module / "__init__.py").write_text(KILL.format(name))
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), ROOT))}
        command = [sys.executable, "-m", "losscli", *arguments]
        return subprocess.run(
            command, env=environ, capture_output=True, text=True, check=False, timeout=60
        )

    return run


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
@pytest.mark.parametrize("module", ["click", "torch"])
def test_a_signal_during_an_import_that_swallows_it_ends_the_program(interrupted, module, name):
    done = interrupted(module, name, "bench", "--device", "auto", "--loss", "mse", "--size", "8")
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "losscli: interrupted\n"


def test_signal_after_the_imports_is_one_line(interrupted):
    done = interrupted("yaml", "SIGTERM", "bench", "--loss", "mse", "--size", "8", "--dry-run")
    assert (done.returncode, done.stderr) == (130, "losscli: interrupted\n")
