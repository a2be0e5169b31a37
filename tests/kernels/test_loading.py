"""Programs that PyTorch saved find the operators; modules keep separate expectations."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path

from losscli import nn

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
WAYS = ("import losscli.functional", "import losscli; losscli.load()")


def test_a_program_saved_by_export_runs_in_processes_that_import_losscli_or_load_it(
    tmp_path: Path,
) -> None:
    programs = [SAVE, *(LOAD.format(how=how) for how in WAYS)]
    command = [sys.executable, "-c", FORKED, str(tmp_path / "program.pt2"), *programs]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["2.25"] * 3


def test_each_module_and_copy_has_its_own_expectation() -> None:
    first = nn.MSELoss()
    modules = [first, nn.MSELoss(), nn.HingeLoss(), copy.deepcopy(first)]
    modules.append(pickle.loads(pickle.dumps(first)))
    sites = [module._site for module in modules]
    assert len(set(sites)) == len(sites)
    assert min(sites) > 0, "0 is the functions'"
