"""Trains a small model of words, its loss from the hidden states and from the logits.

`python docs/hidden_states.py` learns which word of this project's license follows two others, once
with `losscli.functional.linear_cross_entropy` and a memory budget, once with PyTorch's linear layer
and cross entropy, and prints both losses on the way, then what a step takes of the memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

from losscli.functional import linear_cross_entropy
from losscli.machine.allocator import measure_peak

STEPS, SHOWN, ROWS = 300, 100, 1024
WIDTH, VOCABULARY = 32, 4096
BUDGET = 2 * 2**20
TEXT = Path(__file__).parents[1] / "LICENSE"
Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


class Model(torch.nn.Module):
    """Reads two words in two layers; the vocabulary's weight makes logits of what they give."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(2 * WIDTH, WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, WIDTH)
        )
        self.vocabulary = torch.nn.Parameter(torch.randn(VOCABULARY, WIDTH) / WIDTH**0.5)

    def forward(self, words: Tensor) -> Tensor:
        """Return the hidden states of pairs of words, ``(N, 2)``."""
        hidden: Tensor = self.layers(self.embedding(words).flatten(1))
        return hidden


def of_logits(hidden: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    """Return the loss as PyTorch computes it."""
    return cross_entropy(linear(hidden, weight), target)


def of_hidden_states(hidden: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    """Return the loss without all logits at once."""
    loss: Tensor = linear_cross_entropy(hidden, weight, target, memory_budget=BUDGET)
    return loss


def data() -> Tensor:
    """Return the words of the text as numbers of a vocabulary that has many others."""
    words = re.findall(r"\w+", TEXT.read_text().lower())
    return torch.tensor([sorted(set(words)).index(word) for word in words])


def steps(loss_of: Loss) -> Iterator[Callable[[], float]]:
    """Yield the steps of a training, each a function that returns its loss."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    text, model = data(), Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def step() -> float:
        first = torch.randint(len(text) - 2, (ROWS, 1), generator=generator)
        words = text[first + torch.arange(3)]
        optimizer.zero_grad()
        loss = loss_of(model(words[:, :2]), model.vocabulary, words[:, 2])
        loss.backward()
        optimizer.step()
        return loss.item()

    while True:
        yield step


def peak(loss_of: Loss) -> int:
    """Return the bytes that a step holds at most, beyond the model and its optimizer."""
    first, second = islice(steps(loss_of), 2)
    first()
    return measure_peak(second, "cpu")


def main() -> None:
    """Train with both, and print a line every 100 steps, then the memory of a step of each."""
    both = zip(steps(of_hidden_states), steps(of_logits), strict=True)
    for number, (own, torchs) in enumerate(islice(both, STEPS), 1):
        found = own(), torchs()
        if number % SHOWN == 0:
            print(f"step {number}: losscli {found[0]:.6f}, PyTorch {found[1]:.6f}")
    for name, loss_of in (("losscli", of_hidden_states), ("PyTorch", of_logits)):
        print(f"a step of {name} holds {peak(loss_of) / 1e6:.1f} MB at most")


if __name__ == "__main__":
    main()
