"""Programs that PyTorch saved find the operators; modules keep separate expectations."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from losscli import nn

SAVE = """
import sys, torch
from losscli import nn
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.loss = nn.SmoothL1Loss(beta=0.5)
    def forward(self, x, y):
        return self.loss(x * 2, y)
arguments = torch.arange(4.0), torch.ones(4)
torch.export.save(torch.export.export(Model(), arguments), sys.argv[1])
print(Model()(*arguments).item())
"""
LOAD = """
import sys, torch
{how}
print(torch.export.load(sys.argv[1]).module()(torch.arange(4.0), torch.ones(4)).item())
"""


@pytest.mark.parametrize("how", ["import losscli.functional", "import losscli; losscli.load()"])
def test_a_program_saved_by_export_runs_in_a_fresh_process(how: str, tmp_path: Path) -> None:
    def run(program: str) -> str:
        command = [sys.executable, "-c", program, str(tmp_path / "program.pt2")]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run(SAVE) == run(LOAD.format(how=how))


def test_each_module_and_copy_has_its_own_expectation() -> None:
    first = nn.MSELoss()
    modules = [first, nn.MSELoss(), nn.HingeLoss(), copy.deepcopy(first)]
    modules.append(pickle.loads(pickle.dumps(first)))
    sites = [module._site for module in modules]
    assert len(set(sites)) == len(sites)
    assert min(sites) > 0, "0 is the functions'"
