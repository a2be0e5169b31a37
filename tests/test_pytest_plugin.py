import subprocess
import sys
import tomllib
from importlib import import_module, metadata

import pytest

from losscli.pytest_plugin import LosscliBench, losscli_bench
from tests.documents import ROOT

PLUGIN = "losscli.pytest_plugin"
KERNEL = """\
import torch


def mse_loss(input, target):
    return torch.mean((input - target) ** 2){more}
"""
QUICK = '"--loss", "mse", "--device", "cpu"'
TIMED = f'{QUICK}, "--size", "64x64", "--pass", "forward", "--max-time", "50ms", "--processes", "1"'


def run_tests(folder, text, kernel=""):
    """Run a file of tests beside a kernel as a user would; return what pytest says."""
    (folder / "kernels.py").write_text(KERNEL.format(more=kernel))
    (folder / "test_kernels.py").write_text(text)
    installed = any(each.value == PLUGIN for each in metadata.entry_points(group="pytest11"))
    named = [] if installed else ["-p", PLUGIN]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *named]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_entry_point_is_the_plugin():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"losscli": PLUGIN}
    assert import_module(PLUGIN).losscli_bench is losscli_bench


def test_plugin_imports_neither_torch_nor_records():
    heavy = "{'torch', 'numpy', 'msgspec'}"
    text = f"import sys, {PLUGIN}; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", text], check=False).returncode == 0


def test_kernels_are_named_by_file_path_or_function(tmp_path):
    (tmp_path / "kernels.py").write_text(KERNEL.format(more=""))
    bench = LosscliBench(tmp_path / "test_kernels.py", tmp_path)
    assert bench._named("kernels.py") == str(tmp_path / "kernels.py")
    assert bench._named("kernels.py:mse_loss") == f"{tmp_path / 'kernels.py'}:mse_loss"
    assert bench._named("elsewhere/kernels.py") == "elsewhere/kernels.py"
    assert bench._named(run_tests) == f"{__file__}:run_tests"
    with pytest.raises(ValueError, match="is not defined at the top of a file"):
        bench._named(lambda: None)


def test_kernel_that_cannot_run_here_skips_and_one_that_does_not_build_fails(tmp_path, monkeypatch):
    bench = LosscliBench(tmp_path / "test_kernels.py", tmp_path)
    for code, outcome in ((3, pytest.fail.Exception), (4, pytest.skip.Exception)):
        done = subprocess.CompletedProcess([], code, "", "losscli: error: why.\n")
        monkeypatch.setattr(
            "losscli.machine.commands.subprocess.run", lambda *_, done=done, **__: done
        )
        with pytest.raises(outcome, match="why"):
            bench.judge("kernels.py", "--loss", "mse")


@pytest.mark.slow
def test_plugin_passes_skips_and_fails_with_the_report(tmp_path):
    text = f"""
from kernels import mse_loss

def test_absent(losscli_bench):
    losscli_bench.judge("kernels.py", "--loss", "mse", "--device", "cuda:99")

def test_right(losscli_bench):
    assert "RIGHT" in losscli_bench.judge(mse_loss, {QUICK}, "--no-time", "--quick")

def test_time(losscli_bench):
    (result,) = losscli_bench.time(mse_loss, {TIMED})
    assert result.seconds.median > 0

def test_fast(losscli_bench):
    losscli_bench.time("kernels.py", {TIMED}, faster_than="reference", by=1e6)
"""
    code, told = run_tests(tmp_path, text)
    assert code == 1, told
    assert "1 failed, 2 passed, 1 skipped" in told
    assert "has to be 1e+06 times as fast as reference, but is" in told
    assert "mse 64x64" in told
    code, told = run_tests(tmp_path, text, kernel=" + 1")
    assert code == 1
    assert "losscli judge exits with 1" in told
    assert "WRONG" in told
    assert "Traceback" not in told
