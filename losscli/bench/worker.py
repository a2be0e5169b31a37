"""A process that measures for ``losscli bench``; its first answer means that it is ready."""

import sys

import torch

from losscli.bench.runner import Runner
from losscli.machine import allocator
from losscli.processes import Channel, to_parent


def serve(channel: Channel, runner: Runner) -> None:
    """Answer each task, and free all memory while other processes measure."""
    torch.ones((), requires_grad=True).backward(torch.ones(()))  # imports sympy, which takes long
    channel.put(None)
    for task in channel:
        with channel.answer():
            for measured in runner.measure(task):
                channel.put(measured)
            if runner.device != "cpu":
                torch.cuda.empty_cache()
            allocator.give_back()


if __name__ == "__main__":
    _device, _threads = sys.argv[1:]
    torch.set_num_threads(int(_threads))
    with to_parent() as _channel:
        serve(_channel, Runner(_device, notify=_channel.put))
