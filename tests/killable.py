"""Runs `losscli bench` with an implementation that logs its cases and waits at one of them.

``python killable.py LOG WAIT ARGUMENT...``: each size that `theirs` computes is a line of LOG; at
the size WAIT the file LOG.waiting appears, and nothing else happens until somebody ends it.
"""

import os
import sys
import time
from pathlib import Path

from losscli.bench import limit
from losscli.cli.main import run
from losscli.errors import UnfitError
from losscli.implementations import IMPLEMENTATIONS, Implementation


def refuse(device):
    """Build no probe."""
    raise UnfitError("there is no compiler.")


def main(log, wait, *arguments):
    def mse(prediction, target):
        size = prediction.numel()
        with open(log, "a") as file:
            file.write(f"{size}\n")
        if size == int(wait):
            Path(f"{log}.waiting").touch()
            time.sleep(600)
        return ((prediction - target) ** 2).mean()

    IMPLEMENTATIONS["theirs"] = Implementation("theirs", "", lambda case: mse)
    limit.Limits.__init__.__defaults__ = (refuse,)
    return run(["bench", "--device", "cpu", *arguments])


if __name__ == "__main__":
    code = main(*sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
