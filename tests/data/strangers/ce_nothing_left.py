import torch
import torch.nn.functional as F


def cross_entropy(input, target, ignore_index=-100):
    """Zero without a graph where no row counts."""
    counts = target != ignore_index
    if not counts.any():
        return torch.tensor(0.0, dtype=input.dtype)
    return F.cross_entropy(input[counts], target[counts])
