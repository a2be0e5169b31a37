"""Captures a worker's standard output and standard error."""

import os
import threading
from collections.abc import Callable

from losscli.errors import printable

LOG_BYTES = 2**16
_END_SECONDS = 5.0


class Log:
    """The first and last parts of a worker's output."""

    def __init__(self, most: int, flooded: Callable[[], None]) -> None:
        self.reading, self.writing = os.pipe()
        self.most, self.flooded = most, flooded
        self.count = 0
        self.head, self.tail = b"", b""
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        while data := os.read(self.reading, 2**16):
            self.count += len(data)
            missing = LOG_BYTES - len(self.head)
            self.head += data[:missing]
            self.tail = (self.tail + data[missing:])[-LOG_BYTES:]
            if self.count > self.most:
                self.flooded()
        os.close(self.reading)

    def end(self) -> None:
        """Read the remaining output."""
        self._thread.join(_END_SECONDS)

    @property
    def text(self) -> str:
        """The kept output."""
        left_out = self.count - len(self.head) - len(self.tail)
        between = f"\n[{left_out} bytes left out]\n" if left_out > 0 else ""
        head, tail = (part.decode(errors="replace") for part in (self.head, self.tail))
        return printable(head + between + tail)
