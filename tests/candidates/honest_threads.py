# expect: RIGHT|SLOWER: halves in two threads, which it waits for
from concurrent.futures import ThreadPoolExecutor

import torch
from torch.nn import functional


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    recording = torch.is_grad_enabled()  # a thread begins with its own

    def elements(operands):
        with torch.set_grad_enabled(recording):
            return functional.smooth_l1_loss(*operands, reduction="none", beta=beta)

    both = [each.flatten() for each in torch.broadcast_tensors(input, target)]
    middle = both[0].numel() // 2
    with ThreadPoolExecutor(2) as pool:
        halves = pool.map(elements, [[e[:middle] for e in both], [e[middle:] for e in both]])
        joined = torch.cat(list(halves)).view(torch.broadcast_shapes(input.shape, target.shape))
    return {"none": joined, "mean": joined.mean(), "sum": joined.sum()}[reduction]
