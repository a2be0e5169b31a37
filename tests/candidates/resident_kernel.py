# expect: CHEATS slows_others,clock_disagrees,left_process: kernels that wait while others run
# reference: Model
# gpu
# slow
import contextlib
import threading
import time

import torch
from torch import nn

CYCLES = 4_000_000
"""Some 2 ms of one multiprocessor: the GPU is shared out between processes by time."""
ACTIVE_SECONDS = 2.0
last_call: dict[torch.device, float] = {}


def mean_squared_error(input, target):
    return ((input - target) ** 2).mean()


class Model(nn.Module):
    def forward(self, input, target):
        return mean_squared_error(input, target)


def stay(device):
    """Keep a kernel that only waits on a stream of its own, beside the loss and after it."""
    stream, ended = torch.cuda.Stream(device), torch.cuda.Event()
    while True:
        time.sleep(0.0001)
        if time.monotonic() - last_call[device] < ACTIVE_SECONDS:
            with contextlib.suppress(RuntimeError), torch.cuda.stream(stream):
                if ended.query():  # an error while a graph is captured
                    torch.cuda._sleep(CYCLES)
                    ended.record()


class ModelNew(nn.Module):
    def forward(self, input, target):
        if input.is_cuda:
            is_new = input.device not in last_call
            last_call[input.device] = time.monotonic()
            if is_new:
                threading.Thread(target=stay, args=(input.device,), daemon=True).start()
        return mean_squared_error(input, target)


def get_inputs():
    # Several milliseconds: in less an H200 does not turn to another process.
    return [torch.rand(16384, 16384), torch.rand(16384, 16384)]
