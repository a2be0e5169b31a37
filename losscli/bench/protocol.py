"""The messages between the command and the processes that measure for it: lines of JSON.

The command writes a :class:`Task` a line. The process answers with any number of :class:`Note` and
:class:`Report`, and then with :class:`Done` or :class:`Broken`. The first line that it writes is a
Done, as soon as it is ready.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from losscli.axes import PassName
from losscli.bench.outcome import Found, Surroundings, Timed, Untimed
from losscli.bench.plan import Task


class Note(msgspec.Struct, tag="note"):
    """A note for the user."""

    text: str


class Report(msgspec.Struct, tag="report"):
    """The outcomes of a pass."""

    pass_: PassName
    timed: dict[str, Timed]
    untimed: dict[str, Untimed]
    around: Surroundings

    @property
    def found(self) -> Found:
        """The report as the command's own type."""
        return Found(self.pass_, {**self.timed, **self.untimed}, self.around)


class Done(msgspec.Struct, tag="done"):
    """The task is finished, or the process is ready for the first."""


class Broken(msgspec.Struct, tag="broken"):
    """An error that ends the run."""

    text: str
    exit_code: int | None = None
    """The exit code of losscli for the error; None for an unexpected error."""


Message = Note | Report | Done | Broken

_messages: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)
_tasks = msgspec.json.Decoder(Task)


def report(found: Found) -> Report:
    """Return the outcomes of a pass as a message."""
    timed, outcomes = found.timed, found.outcomes
    untimed = {name: each for name, each in outcomes.items() if isinstance(each, Untimed)}
    return Report(found.pass_, timed, untimed, found.around)


def write_line(value: Message | Task) -> bytes:
    """Return a line of JSON."""
    return msgspec.json.encode(value, enc_hook=_mapping) + b"\n"


def read_message(line: bytes) -> Message:
    """Parse a line of a process."""
    return _messages.decode(line)


def read_task(line: bytes) -> Task:
    """Parse a line of the command."""
    return _tasks.decode(line)


def _mapping(value: Any) -> dict[str, Any]:
    """Return the parameters of a loss as JSON can hold them."""
    if isinstance(value, Mapping):
        return dict(value)
    raise NotImplementedError(f"JSON has no {type(value).__name__}")
