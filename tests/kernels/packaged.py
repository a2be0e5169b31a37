"""Compiles and loads packages of AOTInductor, in a process that may die of it.

``python -m tests.kernels.packaged DEVICE FOLDER``, for test_transforms_compiled.py. With some
versions PyTorch itself dies while it loads any package. So a package of a plain model comes first,
before losscli is imported, and then one with its losses.
"""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

ROWS = (5, 6, 9)
PLAIN_WORKS = "a package of a plain model works"
"""Printed before the package with losses is compiled."""


class Plain(torch.nn.Module):
    """Nothing of losscli."""

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor]:
        return ((x * 2 - y).sin().mean(),)


class Losses(torch.nn.Module):
    """A loss by its module, and a gradient by its function."""

    def __init__(self) -> None:
        super().__init__()
        from losscli import functional, nn

        self.loss = nn.SmoothL1Loss(beta=0.5)
        self.with_grad = functional.mse_loss_with_grad

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return self.loss(x * 2, y), self.with_grad(x, y)[1]


def operands(rows: int, device: str) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(shape, generator=generator) for shape in ((rows, 4), (4,)))
    return x.to(device), y.to(device)


def dynamic_program(model: torch.nn.Module, device: str) -> Any:
    rows = torch.export.Dim("rows", min=2)
    return torch.export.export(model, operands(6, device), dynamic_shapes=({0: rows}, None))


def check(model: torch.nn.Module, device: str, path: Path) -> None:
    made = torch._inductor.aoti_compile_and_package(
        dynamic_program(model, device), package_path=str(path)
    )
    package = torch._inductor.aoti_load_package(made)
    for rows in ROWS:
        x, y = operands(rows, device)
        torch.testing.assert_close(tuple(package(x, y)), model(x, y))


def run(device: str, folder: Path) -> None:
    """Check packages in another process; skip where that of a plain model ends the process."""
    program = [sys.executable, "-m", "tests.kernels.packaged", device, str(folder)]
    root = Path(__file__).parents[2]
    judge(subprocess.run(program, cwd=root, capture_output=True, text=True))


def judge(done: subprocess.CompletedProcess[str]) -> None:
    """Skip where a signal ended the process before the losses had a part; fail for all else."""
    if done.returncode < 0 and PLAIN_WORKS not in done.stdout:
        name = signal.Signals(-done.returncode).name
        pytest.skip(f"PyTorch dies of {name} with a package of a plain model")
    assert done.returncode == 0, f"exit code {done.returncode}: {done.stdout}{done.stderr}"


def main(device: str, folder: Path) -> None:
    check(Plain(), device, folder / "plain.pt2")
    assert "losscli" not in sys.modules
    print(PLAIN_WORKS, flush=True)
    check(Losses(), device, folder / "losses.pt2")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
