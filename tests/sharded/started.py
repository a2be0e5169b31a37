"""Starts ranks for the checks of a module: ``python -m tests.sharded.started MODULE RANKS FOLDER``.

Each rank runs the CHECKS of the module, in a group of its BACKEND, and writes what became of each.
"""

import json
import os
import subprocess
import sys
import traceback
from datetime import timedelta
from importlib import import_module
from pathlib import Path

import torch
from torch import distributed
from torch.multiprocessing.spawn import spawn


def outcomes(module: str, ranks: int, folder: Path) -> list[dict[str, str]]:
    """Return by the rank what each check raised, and nothing where it passed."""
    program = [sys.executable, "-m", "tests.sharded.started", module, str(ranks), str(folder)]
    subprocess.run(program, cwd=Path(__file__).parents[2], check=False, timeout=600)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(ranks)]


def run(rank: int, module: str, count: int, folder: str) -> None:
    of = import_module(module)
    torch.set_num_threads(1)
    if of.BACKEND == "nccl":
        torch.cuda.set_device(rank)
    distributed.init_process_group(
        *(of.BACKEND, f"file://{folder}/meeting"),
        rank=rank,
        world_size=count,
        timeout=timedelta(seconds=60),
    )
    found = {}
    for check in of.CHECKS:
        try:
            check()
        except Exception:
            found[check.__name__] = traceback.format_exc()
            break  # other ranks may wait for this one
        found[check.__name__] = ""
    Path(folder, f"{rank}.json").write_text(json.dumps(found))
    distributed.destroy_process_group()


if __name__ == "__main__":
    if Path("/sys/class/net/lo").exists():  # whatever the host's name leads to
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    spawn(run, (sys.argv[1], int(sys.argv[2]), sys.argv[3]), int(sys.argv[2]))
