"""Length-prefixed messages over a socket."""

import contextlib
import pickle
import select
import socket
import struct
import traceback
from collections.abc import Callable, Iterator
from typing import Any

MOST_BYTES = 2**26
"""The longest message; a length is not trusted."""
STOPPED_SECONDS = 10.0
"""How long a process may stay stopped while it is waited for."""
_LENGTH = struct.Struct("=I")


class Channel(contextlib.AbstractContextManager["Channel"]):
    """One end of a connection between processes; a context that closes it."""

    def __init__(self, end: socket.socket, go_on: Callable[[], None] | None = None) -> None:
        """``go_on`` resumes the other process during unlimited waits."""
        self.socket, self._go_on = end, go_on

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def __iter__(self) -> Iterator[Any]:
        while (message := self.receive()) is not None:
            yield pickle.loads(message)

    def send(self, message: bytes) -> None:
        """Send a message; OSError if the other end is closed."""
        self.socket.sendall(_LENGTH.pack(len(message)) + message)

    def receive(self, seconds: float | None = None) -> bytes | None:
        """Return the next message, None at the end; TimeoutError, or ValueError if too long."""
        self.socket.settimeout(seconds)
        try:
            if seconds is None and self._go_on:
                ready = select.poll()
                ready.register(self.socket, select.POLLIN)
                while not ready.poll(1000 * STOPPED_SECONDS):
                    self._go_on()
            head = self._exactly(_LENGTH.size)
            if head is None:
                return None
            (length,) = _LENGTH.unpack(head)
            if length > MOST_BYTES:
                raise ValueError(f"a message of {length} bytes")
            return self._exactly(length)
        except ConnectionResetError:  # it closed its end with messages unread
            return None

    def put(self, value: object) -> None:
        """Send a value to a trusted process; see :meth:`send`."""
        self.send(pickle.dumps(value))

    @contextlib.contextmanager
    def answer(self) -> Iterator[None]:
        """Send None after the block's values, or the exception that ended it."""
        try:
            yield
            self.put(None)
        except BrokenPipeError:
            raise
        except Exception as error:
            error.add_note(traceback.format_exc())
            try:
                pickle.loads(pickle.dumps(error))
            except Exception:  # its class is made from other arguments than it keeps
                error = RuntimeError(f"{type(error).__name__}: {error}")
            self.put(error)

    def each(self) -> Iterator[Any]:
        """Yield an :meth:`answer`'s values; raise its exception, or EOFError."""
        for value in self:
            if isinstance(value, Exception):
                raise value
            if value is None:
                return
            yield value
        raise EOFError("the other process has closed its end")

    def _exactly(self, count: int) -> bytes | None:
        parts: list[bytes] = []
        while count:
            part = self.socket.recv(min(count, 2**20))
            if not part:
                return None
            parts.append(part)
            count -= len(part)
        return b"".join(parts)
