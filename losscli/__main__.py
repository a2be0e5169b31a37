"""The program's start: ready for signals before anything else is imported."""

from __future__ import annotations

import signal
import sys

from losscli.cli import interrupts


def main() -> int:
    """Run the program; a signal that comes while it is being imported ends it at once."""
    for number in interrupts.numbers():
        signal.signal(number, interrupts.end_at_once)
    from losscli.cli.main import run

    return run()


if __name__ == "__main__":
    sys.exit(main())
