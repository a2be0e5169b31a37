"""Trains one small model with losscli's loss and with PyTorch's, from the same start.

`python docs/training.py` fits a plane to data with outliers, once with each loss, and prints both
losses on the way. They agree to rounding, and so do the models in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from losscli import nn

STEPS, SHOWN = 300, 50
BETA = 0.5
Loss = Callable[[Tensor, Tensor], Tensor]


def data() -> tuple[Tensor, Tensor]:
    """Return 4,096 points of a plane with noise, a twentieth of them far off."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(4096, 8, generator=generator)
    slopes = torch.linspace(-2, 2, 8)
    targets = inputs @ slopes + 0.1 * torch.randn(4096, generator=generator)
    targets[::20] += 30
    return inputs, targets.unsqueeze(1)


def train(loss_of: Loss, steps: int = STEPS) -> Iterator[tuple[float, torch.nn.Linear]]:
    """Yield loss and model after each step."""
    torch.manual_seed(0)
    inputs, targets = data()
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model(inputs), targets)
        loss.backward()
        optimizer.step()
        yield loss.item(), model


def main() -> None:
    """Train with both, and print a line every 50 steps."""
    both = zip(
        train(nn.SmoothL1Loss(beta=BETA)), train(torch.nn.SmoothL1Loss(beta=BETA)), strict=True
    )
    for step, ((own, model), (torchs, other)) in enumerate(both, 1):
        if step % SHOWN == 0:
            off = (model.weight - other.weight).abs().max()
            print(f"step {step}: losscli {own:.6f}, PyTorch {torchs:.6f}; weights differ {off:.1g}")


if __name__ == "__main__":
    main()
