"""Mistakes in the CUDA kernels and in what launches them; the formulas are the CPU's as well."""

from __future__ import annotations

from .cuda_dense import DENSE, INCOMING
from .cuda_strided import STRIDED
from .cuda_sums import OTHER_DERIVATIVES, SUMS
from .torch_layer import CAPTURED

CUDA = (*DENSE, *INCOMING, *STRIDED, *SUMS, *OTHER_DERIVATIVES, *CAPTURED)
