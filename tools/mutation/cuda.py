"""Mistakes in the CUDA kernels and their launches; the formulas are shared with the CPU."""

from __future__ import annotations

from .cuda_dense import DENSE, INCOMING
from .cuda_strided import STRIDED
from .cuda_sums import OTHER_DERIVATIVES, SUMS
from .torch_layer import CAPTURED

CUDA = (*DENSE, *INCOMING, *STRIDED, *SUMS, *OTHER_DERIVATIVES, *CAPTURED)
