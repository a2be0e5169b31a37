"""Restarts this command in several ranks with torchrun."""

import logging
import os
import signal
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from losscli.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, RankError
from losscli.machine.devices import core_count
from losscli.processes import how_ended

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure


def launch(ranks: int, arguments: Sequence[str]) -> int:
    """Run ``losscli ARGUMENTS`` in local ranks; return the first rank's exit code."""
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    os.environ.setdefault("OMP_NUM_THREADS", str(max(core_count() // ranks, 1)))
    logging.disable()  # it would describe each failure in a page of its own
    options = ("--standalone", "--nproc-per-node", str(ranks), "--monitor-interval", "0.1")
    try:
        run.run(run.parse_args([*options, "-m", "losscli", *arguments]))
    except ChildFailedError as error:
        return exit_code(error.failures)
    except SignalException:
        return EXIT_INTERRUPTED  # the first rank has said it, and reported
    finally:
        logging.disable(logging.NOTSET)
    return EXIT_OK


def exit_code(failures: Mapping[int, "ProcessFailure"]) -> int:
    """Return the exit code of failed ranks; RankError if a signal ended one."""
    first = min((each.timestamp for each in failures.values()), default=0)
    killed = {
        rank: each
        for rank, each in failures.items()
        # By itself, at about the same time, which torchrun reports in whole seconds.
        if each.exitcode < 0 and each.timestamp <= first + 1
        # torchrun ends the others with SIGTERM.
        if each.exitcode != -signal.SIGTERM or len(failures) == 1
    }
    if killed:
        why = {-signal.SIGKILL: ", as when the system runs out of memory"}
        ends = "; ".join(
            f"rank {rank} (process {each.pid}) ended {how_ended(each.exitcode)}"
            f"{why.get(each.exitcode, '')}"
            for rank, each in sorted(killed.items())
        )
        raise RankError(f"{ends}, which ended the run. The other ranks were stopped.")
    codes = [failures[r].exitcode for r in sorted(failures) if failures[r].exitcode > 0]
    return codes[0] if codes else EXIT_FAILED
