"""Starts real ranks for all tests of this folder: ``python -m tests.sharded.ranks FOLDER``.

One process imports PyTorch and what checks import of it, which takes seconds, and forks 2, then 4
ranks. Each rank computes the cases, runs the checks of its number of ranks, and writes what
it found to a file. At last 2 ranks put the mistakes of the self-test to checks of verify.
"""

import json
import multiprocessing
import os
import socket
import sys
import traceback
import warnings
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
from torch import Tensor, distributed

from losscli.operators import loading
from losscli.ranks.place import Place

from .cases import CASES, RANKS, SIZES, cases_of, compute, parts_of, problem_of
from .checks import CHECKS
from .mistakes import find_mistakes

_TIMEOUT = timedelta(seconds=60)


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    if Path("/sys/class/net/lo").exists():  # whatever the host's name leads to
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    loading.load()
    context = multiprocessing.get_context("fork")
    for count, program in (*((count, _run) for count in RANKS), (2, _find_mistakes)):
        processes = [
            context.Process(target=program, args=(rank, count, folder), daemon=True)
            for rank in range(count)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        if any(process.exitcode for process in processes):
            sys.exit(f"one of {count} ranks has failed")


def _run(rank: int, count: int, folder: Path) -> None:
    warnings.simplefilter("error")
    distributed.init_process_group(
        *("gloo", f"file://{folder}/meeting-{count}"), rank=rank, world_size=count, timeout=_TIMEOUT
    )
    found: dict[str, Any] = {"cases": {}, "checks": {}}
    sizes = SIZES[count]

    def answer(name: str) -> dict[str, Tensor]:
        return compute(problem_of(CASES[name]), parts_of(sizes)[rank], sizes)

    work: list[tuple[str, str, Callable[[], Any]]]
    work = [("cases", name, partial(answer, name)) for name in cases_of(count)]
    work += [("checks", check.__name__, check) for check in CHECKS[count]]
    for kind, name, task in work:
        try:
            found[kind][name] = task()
        except Exception:
            found["raised"] = (name, traceback.format_exc())
            break  # other ranks may wait for this one
    torch.save(found, folder / f"{count}-{rank}.pt")
    distributed.destroy_process_group()


def _find_mistakes(rank: int, count: int, folder: Path) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(count)}
    found = find_mistakes(Place(rank, count, rank))
    (folder / f"mistakes-{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
