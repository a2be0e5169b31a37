"""A process that measures for ``losscli bench``: it gets tasks and sends their outcomes and notes.

The first answer is that to no task, as soon as the process is ready.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch

from losscli.bench.outcome import Found
from losscli.bench.plan import Task
from losscli.bench.runner import Runner
from losscli.machine import allocator, devices
from losscli.processes import Channel, to_parent


def main(device: str, threads: str) -> None:
    """Measure with so many threads of the CPU until the command ends."""
    devices.set_threads(int(threads))
    with to_parent() as channel:
        serve(channel, Runner(device, notify=channel.put))


def serve(channel: Channel, runner: Runner) -> None:
    """Answer each task; ``runner`` is the machine's, or a test's fake."""
    torch.ones((), requires_grad=True).backward(torch.ones(()))  # imports sympy, which takes long
    channel.put_each(())
    for task in channel:
        channel.put_each(_measure(runner, task))


def _measure(runner: Runner, task: Task) -> Iterator[Found]:
    """Measure, and free all memory while other processes do."""
    yield from runner.measure(task)
    if runner.device != "cpu":
        torch.cuda.empty_cache()
    allocator.give_back()


if __name__ == "__main__":
    main(*sys.argv[1:])
