# expect: RIGHT|SLOWER: a dataclass and its own source, which need a properly imported module
from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass
from pathlib import Path

from torch.nn import functional


@dataclass(frozen=True)
class SmoothL1:
    beta: float
    reduction: str = "mean"

    def __call__(self, input, target):
        return functional.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


assert sys.modules[__name__].SmoothL1 is SmoothL1
assert inspect.getsource(SmoothL1) in Path(__file__).read_text()


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    return SmoothL1(beta, reduction)(input, target)
