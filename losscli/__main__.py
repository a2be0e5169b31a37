"""The program's entry point: handles signals before it imports anything else."""

import atexit
import os
import signal
import sys

from losscli.cli import interrupts


def main() -> int:
    """Run the program; a signal that comes while it is being imported ends it at once."""
    for number in interrupts.numbers():
        signal.signal(number, interrupts.end_at_once)
    try:
        from losscli.cli.main import run
    except Exception as error:
        from losscli.cli import dependencies
        from losscli.errors import EXIT_UNFIT

        if (told := dependencies.trouble(error)) is None or "--debug" in sys.argv:
            raise
        print(f"losscli: error: {told}", file=sys.stderr)
        return EXIT_UNFIT

    code = run()
    if code == interrupts.INTERRUPTED:
        # Python would end itself by SIGINT if C code evaluated what the exception passed through.
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
