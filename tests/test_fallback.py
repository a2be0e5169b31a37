"""Training goes on without a compiler; commands that measure kernels do not."""

import os
import re
import stat
import subprocess
import sys
import warnings

import pytest

from losscli.cli import main
from losscli.errors import BuildError, UnfitError, UsageError
from losscli.implementations.builtin import IMPLEMENTATIONS
from losscli.operators import fallback, loading
from losscli.processes.process import FALLBACK_VARIABLE
from losscli.reasons import Code
from tests.documents import ROOT

SCRIPT = """
import warnings

import torch

import losscli
from losscli import functional, nn
from losscli.operators import loading

rows, target = torch.randn(9, 7, requires_grad=True), torch.randint(7, (9,))
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    for loss in (
        functional.cross_entropy(rows, target, label_smoothing=0.1, z_loss=0.01),
        functional.mse_loss(rows, torch.zeros(9, 7), weight=torch.rand(7)),
        nn.TripletMarginLoss()(rows, rows.flip(0), rows + 1),
        functional.linear_cross_entropy(rows, torch.randn(20, 7), target, memory_budget=10**5),
        functional.linear_token_log_probs(rows, torch.randn(20, 7), target, entropy=True)[1].sum(),
        functional.topk_kl_divergence(rows, *torch.rand(9, 7).topk(2)[::-1]),
    ):
        (gradient,) = torch.autograd.grad(loss, rows)
        assert gradient.isfinite().all()
    with torch.inference_mode():
        loss, gradient = functional.smooth_l1_loss_with_grad(rows.detach(), torch.zeros(9, 7))
        overwritten = rows.detach().clone()
        _, gradient = functional.cross_entropy_with_grad(overwritten, target)
        functional.cross_entropy_with_grad(overwritten, target, inplace=True)
        assert torch.equal(overwritten, gradient)
with torch.autocast("cpu", dtype=torch.bfloat16):
    assert functional.cross_entropy(rows.bfloat16(), target).dtype == torch.float32
with losscli.patch("torch"):
    patched = torch.nn.MSELoss()(rows, torch.zeros(9, 7))
assert "Mse" not in patched.grad_fn.name(), patched.grad_fn
torch.testing.assert_close(torch.autograd.grad(patched, rows)[0], rows.detach() * 2 / 63)
batch = torch.func.vmap(functional.mse_loss)(rows.detach(), torch.zeros(9, 7))
torch.testing.assert_close(batch, rows.detach().square().mean(1))
wide = rows.detach().double()[:2, :3].requires_grad_()
assert torch.autograd.gradgradcheck(lambda x: functional.cross_entropy(x, target[:2] % 3), wide)
try:
    functional.cross_entropy(rows, target + 7)
except IndexError as error:
    print(error)
print(*(f"{each.category.__name__}: {each.message}" for each in told), sep="\\n")
assert not loading._loaded
"""


def without_compiler(*command, **variables):
    environment = {
        **{k: v for k, v in os.environ.items() if k not in ("CXX", "CUDACXX")},
        "PATH": "/nonexistent",
        "PYTHONPATH": str(ROOT),
        **variables,
    }
    return subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def no_kernels(tmp_path, monkeypatch):
    """A process that has loaded nothing, with a cache of its own."""
    monkeypatch.setenv("LOSSCLI_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv(FALLBACK_VARIABLE)
    for name, empty in {"_loaded": set(), "_missing": {}, "_has_warned": False}.items():
        monkeypatch.setattr(fallback, name, empty)
    monkeypatch.setattr(loading, "_loaded", {})
    return tmp_path


def fails(error):
    def load(targets):
        raise error

    return load


def test_training_without_a_compiler_warns_once(tmp_path):
    done = without_compiler("-c", SCRIPT, LOSSCLI_FALLBACK="torch", LOSSCLI_CACHE_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    of_class, *warned = done.stdout.splitlines()
    assert of_class.startswith("cross_entropy: target has class ")
    (told,) = warned
    assert told.startswith("RuntimeWarning: losscli computes losses by PyTorch's formulas")
    assert "no C++ compiler" in told


@pytest.mark.slow
def test_bench_never_measures_a_formula_as_a_kernel(tmp_path):
    done = without_compiler(
        *("-m", "losscli", "bench", "--loss", "mse", "--size", "64", "--device", "cpu"),
        LOSSCLI_FALLBACK="torch",
        LOSSCLI_CACHE_DIR=str(tmp_path),
    )
    assert done.returncode == 4, done.stdout
    assert "no C++ compiler" in done.stdout + done.stderr


@pytest.mark.parametrize(
    "error",
    [
        UnfitError("no C++ compiler"),
        UnfitError("no room is left"),
        BuildError("compiling failed"),
        OSError(28, "No space left on device"),
    ],
)
def test_each_failure_of_a_build_falls_back_once(no_kernels, monkeypatch, error):
    monkeypatch.setattr(loading, "load_targets", fails(error))
    with pytest.warns(RuntimeWarning, match=re.escape(str(error))) as told:
        assert [fallback.has_kernels(name, "cpu") for name in ("mse", "hinge")] == [False, False]
    assert len(told) == 1
    monkeypatch.setenv(FALLBACK_VARIABLE, "error")
    with pytest.raises((BuildError, UnfitError)):
        fallback.has_kernels("mse", "cpu")


def test_failed_build_of_the_binding_is_not_repeated_for_each_loss(no_kernels, monkeypatch):
    asked = []

    def load(targets):
        asked.append(targets)
        raise BuildError("compiling failed")

    monkeypatch.setattr(loading, "load_targets", load)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for loss in ("mse", "hinge", "cross_entropy"):
            assert not fallback.has_kernels(loss, "cpu")
    assert len(asked) == 2


def test_cache_that_cannot_be_written_falls_back(no_kernels, monkeypatch):
    if os.geteuid() == 0:
        monkeypatch.setenv("LOSSCLI_CACHE_DIR", "/proc/nowhere")
    else:
        no_kernels.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.warns(RuntimeWarning, match="cannot write the cache"):
        assert not fallback.has_kernels("mse", "cpu")


def test_unknown_value_of_the_variable_is_an_error(no_kernels, monkeypatch):
    monkeypatch.setattr(loading, "load_targets", fails(UnfitError("no C++ compiler")))
    monkeypatch.setenv(FALLBACK_VARIABLE, "numpy")
    with pytest.raises(UsageError, match="LOSSCLI_FALLBACK must be torch or error, but is 'numpy'"):
        fallback.has_kernels("mse", "cpu")


def test_commands_leave_the_variable_as_it_was(monkeypatch):
    monkeypatch.setenv(FALLBACK_VARIABLE, "torch")
    assert main.run(["list", "losses"]) == 0
    assert os.environ[FALLBACK_VARIABLE] == "torch"


@pytest.mark.parametrize(("device", "variable"), [("cpu", "CXX"), ("cuda", "CC")])
def test_torch_compile_is_skipped_without_a_compiler(monkeypatch, make_case, device, variable):
    unavailable = IMPLEMENTATIONS["compile"].unavailable
    case = make_case("mse", device=device)
    monkeypatch.setenv(variable, sys.executable)
    assert unavailable(case) is None
    for command in ("", "'"):
        monkeypatch.setenv(variable, command)
        monkeypatch.setenv("PATH", "/nonexistent")
        reason = unavailable(case)
        assert reason
        assert reason.code == Code.MISSING_TOOL
        assert "torch.compile needs a compiler" in reason.text
