"""Addresses of Ray clusters: parse them, find them, test whether a cluster answers."""

import os
import re
import socket
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from losscli.errors import UnfitError, UsageError
from losscli.files.directories import weakness_along
from losscli.files.reading import read_bytes

ANSWER_SECONDS = 5.0
"""How long an address may take to answer, including the look-up of its name."""
VARIABLE = "RAY_ADDRESS"
"""Ray's own variable for the cluster to use."""
CLIENT = "ray://"
LOCAL, AUTO = "local", "auto"
"""Values of the variable: start a cluster on this machine; use the one of this machine."""

_LONGEST = 300
_HOST_AND_PORT = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:/\[\]\s]+):([0-9]{1,5})")


@dataclass(frozen=True)
class Address:
    """A cluster's address."""

    host: str
    port: int
    client: bool
    """Whether a Ray Client server is there."""
    variable: str = ""
    """The environment variable that it is from."""

    @property
    def text(self) -> str:
        """The address as Ray takes it."""
        return f"{CLIENT if self.client else ''}{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.text} ({self.variable})" if self.variable else self.text

    def expect_answer(self) -> None:
        """Raise UnfitError if nothing listens at the address."""
        why = f"no cluster responded within {ANSWER_SECONDS:g} s"
        try:
            if done_within(ANSWER_SECONDS, self._connect):
                return
        except (OSError, UnicodeError) as error:  # UnicodeError: an invalid host name
            why = str(error)
        raise UnfitError(
            f"no Ray cluster responds at {self}: {why}. Start one with `ray start --head`; its "
            f"port for {CLIENT} is that of the Ray Client server, 10001."
        )

    def _connect(self) -> None:
        """Connect; each address of the host gets the same time."""
        socket.create_connection((self.host.strip("[]"), self.port), ANSWER_SECONDS).close()


def client_address(text: str) -> Address:
    """Return the address of a Ray Client server from ``HOST:PORT``; else UsageError."""
    found = _parse(text, client=True)
    if not found:
        raise UsageError(
            f"'{CLIENT}{text}' is not an address of a Ray cluster. Write {CLIENT}HOST:PORT, such "
            f"as {CLIENT}head:10001."
        )
    return found


def usual_address() -> Address | str:
    """Return the address in RAY_ADDRESS, ``local`` or ``auto``; UsageError for another value."""
    text = os.environ.get(VARIABLE, "").strip() or AUTO
    if text in (LOCAL, AUTO):
        return text
    found = _parse(text.removeprefix(CLIENT), client=text.startswith(CLIENT), variable=VARIABLE)
    if not found:
        raise UsageError(
            f"{VARIABLE}: '{text}' is not an address of a Ray cluster. Set it to HOST:PORT, "
            f"{CLIENT}HOST:PORT, {AUTO} or {LOCAL}."
        )
    return found


def address_here(notify: Callable[[str], None]) -> Address | None:
    """Return the address of the cluster that `ray start` has started on this machine.

    None where none answers, or where another user could have written the address: their cluster
    could run any code here. ``notify`` is told of the latter.
    """
    path = Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir(), "ray", "ray_current_cluster")
    with suppress(OSError, UnicodeError, UnfitError):
        if weakness := weakness_along(path):
            notify(
                f"the Ray cluster of {path} is not joined: {weakness}. Set {VARIABLE}=HOST:PORT to "
                "join a cluster"
            )
            return None
        found = _parse(read_bytes(path, _LONGEST).decode().strip(), client=False)
        if found:
            found.expect_answer()
        return found
    return None


def _parse(text: str, *, client: bool, variable: str = "") -> Address | None:
    match = _HOST_AND_PORT.fullmatch(text)
    if not match or not 0 < int(match[2]) < 2**16:
        return None
    return Address(match[1], int(match[2]), client, variable)


def done_within(seconds: float, action: Callable[[], object]) -> bool:
    """Tell whether an action ended in time; a slower one goes on in its thread."""
    failed: list[BaseException] = []

    def act() -> None:
        try:
            action()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        return False
    if failed:
        raise failed[0]
    return True
