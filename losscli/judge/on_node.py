"""Judge a job on a node of a cluster, by the same process as on any machine."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec

from losscli.errors import UnfitError
from losscli.judge.parcel import Parcel, restored, unpack
from losscli.judge.pool import COMMAND, JudgeProcess
from losscli.judge.pool import environment as usual_environment
from losscli.judge.verdict import Verdict
from losscli.judge.verdict_cache import own_version, user_verdicts
from losscli.machine.description import compiler
from losscli.runs.encoding import finite

THREADS = "OMP_NUM_THREADS"
"""Ray sets it to a task's cores; a judge uses the machine's, or the driver's value."""


@dataclass(frozen=True)
class Order:
    """A node's order: a parcel, and how to judge it."""

    parcel: Parcel
    version: str
    """``own_version`` of the driver."""
    command: tuple[str, ...] = COMMAND
    cached: bool = True
    threads: str | None = None

    def to_json(self) -> str:
        """Return the text that is sent."""
        return json.dumps(msgspec.to_builtins(self))

    @staticmethod
    def read(text: str) -> Order:
        """Return an order as sent; msgspec.ValidationError if another losscli wrote it."""
        return msgspec.convert(json.loads(text), Order)


def answer_to(text: str) -> dict[str, object]:
    """Return the answer to an order as JSON: the verdict, or why there is none."""
    try:
        said = answer(Order.read(text))
    except msgspec.ValidationError as error:
        said = f"it has no losscli such as this one: {error}"
    except UnfitError as error:
        said = str(error)
    return {"why": said} if isinstance(said, str) else {"verdict": finite(said.to_json())}


def answer(order: Order) -> Verdict | str:
    """Return the verdict, or why this node cannot judge; UnfitError as from the cache."""
    if why := unfit(order.version):
        return why
    with tempfile.TemporaryDirectory(prefix="losscli-") as folder:
        job = unpack(order.parcel, Path(folder))
        known = verdicts() if order.cached else None
        verdict = known.find(job) if known else None
        if verdict is None:
            verdict = judge.ask(job, order.command, environment(order.threads))
            assert verdict  # nobody closes it
            if known:
                known.keep(job, verdict)
        return restored(verdict, job, order.parcel.job)


def unfit(version: str) -> str:
    """Return why this machine cannot judge for another losscli; empty where it can."""
    own = own_version()
    if own != version:
        text = f"it has losscli {_short(own)}, and losscli {_short(version)} asks"
        if own.partition(" ")[0] != version.partition(" ")[0]:
            return text
        return f"{text}: the source files of the two differ, or were edited while it judged"
    if compiler() is None:
        return "it has no C++ compiler"
    return ""


def environment(threads: str | None) -> dict[str, str]:
    """Return the environment of a judge, without Ray's variables."""
    own = usual_environment().items()
    found = {n: v for n, v in own if n != THREADS and not n.startswith("RAY_")}
    return found if threads is None else {**found, THREADS: threads}


judge = JudgeProcess()
"""Judges here until its GPU changes."""
verdicts = cache(user_verdicts)
"""The verdicts kept on this machine, or in a folder that nodes share."""


def _short(version: str) -> str:
    number, _, digest = version.partition(" ")
    return f"{number} ({digest[:8]})"
