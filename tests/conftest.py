"""What all tests start from."""

import signal


def pytest_configure() -> None:
    """Let signals do what they do: a shell's background, or nohup, has Python ignore some."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
