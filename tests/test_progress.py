import io

import pytest

from losscli.bench.plan import plan, seconds_of, seconds_of_all
from losscli.build.ninja import BuildProgress
from losscli.cli import main
from losscli.config.loader import load_config
from losscli.console import notes
from losscli.console.notes import FIRST_LINE, LONGEST_WAIT, Progress
from losscli.errors import EXIT_OK
from losscli.units import format_duration


class _Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def stderr(monkeypatch):
    """Return a function that replaces standard error by a terminal or a log."""
    monkeypatch.delenv("LOSSCLI_QUIET", raising=False)
    monkeypatch.setattr(notes, "_shown", "")

    def replace(terminal):
        stream = _Terminal() if terminal else io.StringIO()
        monkeypatch.setattr("sys.stderr", stream)
        return stream

    return replace


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self):
        return self.now


def run_jobs(clock, seconds, count):
    with Progress([1.0] * count, clock=clock) as progress:
        for number in range(count):
            progress.working_on(f"job {number}")
            clock.now += seconds
            progress.finished += 1


def test_terminal_has_one_line_that_is_replaced_and_cleared(stderr):
    stream = stderr(terminal=True)
    run_jobs(Clock(), 1.0, 3)
    text = stream.getvalue()
    assert "2 of 3 done, about 1 s left: job 2" in text
    assert "\n" not in text
    assert text.endswith("\r\033[K")


def test_log_has_a_few_lines_with_the_time_left_of_a_long_run(stderr):
    stream = stderr(terminal=False)
    run_jobs(Clock(), FIRST_LINE / 10, 9)
    assert stream.getvalue() == ""
    run_jobs(Clock(), 1.0, 3600)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "losscli: 30 of 3600 done, about 60 min left: job 30"
    assert 3 < len(lines) < 3600 / LONGEST_WAIT + 8


def test_quiet_has_neither(stderr, monkeypatch):
    monkeypatch.setenv("LOSSCLI_QUIET", "1")
    for terminal in (True, False):
        stream = stderr(terminal)
        run_jobs(Clock(), 100.0, 9)
        notes.note("unheard")
        assert stream.getvalue() == ""


def test_note_stands_above_the_status_line_which_is_cut_to_the_terminal(stderr, monkeypatch):
    stream = stderr(terminal=True)
    notes.status("at work")
    notes.note("look")
    assert stream.getvalue().endswith("\r\033[Klosscli: look\n\r\033[Kat work")
    monkeypatch.setenv("COLUMNS", "10")
    notes.status("a long line of progress")
    assert stream.getvalue().endswith("\r\033[Ka long li")


def test_time_left_follows_the_weights_of_the_jobs():
    clock = Clock()
    progress = Progress([1.0, 3.0], guess=50.0, clock=clock)
    clock.now = 20.0
    assert progress.seconds_left() == 30.0  # a guess, until a job is finished
    clock.now = 60.0
    assert progress.seconds_left() is None  # the guess was too short
    clock.now = 10.0
    progress.finished += 1
    assert progress.seconds_left() == 30.0


def test_durations_are_as_exact_as_an_estimate():
    for seconds, text in (
        *((0.0, "0 s"), (1.2, "2 s"), (89.0, "89 s"), (90.0, "2 min")),
        *((5399.0, "1 h 30 min"), (7200.0, "2 h"), (7830.0, "2 h 10 min")),
    ):
        assert format_duration(seconds) == text


def test_estimate_grows_with_sizes_and_has_the_start_of_the_processes():
    small, large = (
        plan(load_config(None, {"sizes": (size,), "device": "cpu"}), "cpu")
        for size in ((1024,), (2**26,))
    )
    assert seconds_of(large[0]) > 2 * seconds_of(small[0])
    assert seconds_of_all(small) > sum(map(seconds_of, small))
    assert seconds_of_all([]) == 0.0


@pytest.mark.parametrize("command", ["bench", "verify"])
def test_dry_run_has_an_estimate_of_the_time(capsys, command):
    assert main.run([command, "--device", "cpu", "--dry-run", "--loss", "mse"]) == EXIT_OK
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("takes about ")
    assert last.endswith("without building kernels that are missing")


def test_a_log_has_the_time_left_of_a_build_that_takes_long(capsys):
    clock = Clock()
    show = BuildProgress([], clock=clock).show
    clock.now = 10.0
    show("[1/4] compiling csrc/torch/ahead.cpp")
    assert capsys.readouterr().err == ""  # a short build needs no line
    clock.now = 40.0
    show("no step")
    show("[2/4] compiling csrc/torch/binding.cpp")
    expected = "losscli: 2 of 4 done, about 40 s left: compiling csrc/torch/binding.cpp\n"
    assert capsys.readouterr().err == expected
