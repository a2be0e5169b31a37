"""Trains a small language model with losscli's cross entropy and with PyTorch's, from one start.

`python docs/language_model.py` learns to continue the text of this project's license, letter by
letter, once with each loss, and prints both losses on the way. They agree to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from losscli import nn

STEPS, SHOWN = 200, 50
CONTEXT, WIDTH = 16, 64
TEXT = Path(__file__).parents[1] / "LICENSE"
Loss = Callable[[Tensor, Tensor], Tensor]


class Model(torch.nn.Module):
    """Reads letters one after another, and gives logits for the next after each."""

    def __init__(self, letters: int) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(letters, WIDTH)
        self.memory = torch.nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.logits = torch.nn.Linear(WIDTH, letters)

    def forward(self, letters: Tensor) -> Tensor:
        """Return logits of shape ``(batch, letters of the alphabet, context)``."""
        memory, _ = self.memory(self.embedding(letters))
        logits: Tensor = self.logits(memory)
        return logits.transpose(1, 2)


def data() -> tuple[Tensor, int]:
    """Return the text as numbers of letters, and how many letters there are."""
    text = TEXT.read_text()
    alphabet = sorted(set(text))
    return torch.tensor([alphabet.index(letter) for letter in text]), len(alphabet)


def train(loss_of: Loss, steps: int = STEPS) -> Iterator[tuple[float, Model]]:
    """Yield loss and model after each step."""
    torch.manual_seed(0)
    # Of its own: two trainings may take turns.
    generator = torch.Generator().manual_seed(0)
    text, letters = data()
    model = Model(letters)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(steps):
        starts = torch.randint(len(text) - CONTEXT, (32, 1), generator=generator)
        passages = text[starts + torch.arange(CONTEXT + 1)]
        optimizer.zero_grad()
        loss = loss_of(model(passages[:, :-1]), passages[:, 1:])
        loss.backward()
        optimizer.step()
        yield loss.item(), model


def main() -> None:
    """Train with both, and print a line every 50 steps."""
    both = zip(train(nn.CrossEntropyLoss()), train(torch.nn.CrossEntropyLoss()), strict=True)
    for step, ((own, _), (torchs, _)) in enumerate(both, 1):
        if step % SHOWN == 0:
            print(f"step {step}: losscli {own:.6f}, PyTorch {torchs:.6f}")


if __name__ == "__main__":
    main()
