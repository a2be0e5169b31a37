import copy
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from losscli import nn
from losscli.build.targets import BENCH, CPU, LOSS, TORCH, Target
from losscli.operators import loading
from tests.parameters import SLOW

ROOT = Path(__file__).parents[2]

# Torch and what export needs of it are imported once; losscli by each process that is forked off.
FORKED = """
import os, sys, torch
path, arguments = sys.argv[1], (torch.arange(4.0), torch.ones(4))
torch.export.export(torch.nn.Identity(), arguments[:1])
for program in sys.argv[2:]:
    assert "losscli" not in sys.modules
    if not os.fork():
        exec(program)
        sys.exit()
    assert os.wait()[1] == 0, program
"""
SAVE = """
from losscli import nn
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.loss = nn.SmoothL1Loss(beta=0.5)
    def forward(self, x, y):
        return self.loss(x * 2, y)
torch.export.save(torch.export.export(Model(), arguments), path)
print(Model()(*arguments).item())
"""
LOAD = """
{how}
print(torch.export.load(path).module()(*arguments).item())
"""
FORMULA = """
def mse_loss(input, target, *, reduction="mean"):
    loss = (input - target) ** 2
    return {"mean": loss.mean, "sum": loss.sum, "none": loss.clone}[reduction]()
"""
SMALL = ("--loss", "mse", "--size", "16x24", "--dtype", "float32", "--reduction", "mean")
WAYS = ("import losscli.functional", "import losscli; losscli.load()")


@pytest.mark.slow
def test_a_program_saved_by_export_runs_in_processes_that_import_losscli_or_load_it(tmp_path):
    programs = [SAVE, *(LOAD.format(how=how) for how in WAYS)]
    command = [sys.executable, "-c", FORKED, str(tmp_path / "program.pt2"), *programs]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["2.25"] * 3


@pytest.fixture(scope="module")
def cache_of_mse(tmp_path_factory):
    """A cache that has the libraries of one loss."""
    targets = [Target(TORCH), Target(LOSS, CPU, "mse"), Target(BENCH, CPU)]
    folder = tmp_path_factory.mktemp("cache", numbered=False)
    folder.chmod(0o700)
    for path in loading._obtain(targets):
        shutil.copytree(path.parent, folder / path.parent.name)
    return folder


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(command, id=command[0], marks=[] if command[0] == "verify" else [SLOW])
        for command in (
            ["verify", *SMALL, "--impl", "custom", "--check", "value,steps"],
            ["bench", *SMALL, "--impl", "custom", "--pass", "forward", "--processes", "1"],
            ["judge", "mse.py", "--loss", "mse", "--quick", "--no-time", "--no-cache"],
        )
    ],
)
def test_a_command_builds_the_kernels_of_no_loss_that_it_is_not_asked_for(
    cache_of_mse, tmp_path, command
):
    (tmp_path / "mse.py").write_text(FORMULA)
    before = sorted(cache_of_mse.glob("*-*"))
    done = subprocess.run(
        [sys.executable, "-m", "losscli", *command, "--device", "cpu"],
        env=os.environ | {"LOSSCLI_CACHE_DIR": str(cache_of_mse), "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "building" not in done.stderr
    assert sorted(cache_of_mse.glob("*-*")) == before


def test_each_module_and_copy_has_its_own_expectation():
    first = nn.MSELoss()
    modules = [first, nn.MSELoss(), nn.HingeLoss(), copy.deepcopy(first)]
    modules.append(pickle.loads(pickle.dumps(first)))
    sites = [module._site for module in modules]
    assert len(set(sites)) == len(sites)
    assert min(sites) > 0, "0 is the functions'"
