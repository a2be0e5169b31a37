"""Fixtures that all tests share."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from losscli.cases.case import Case
from losscli.config.schema import PROCESSES
from losscli.implementations import IMPLEMENTATIONS, Implementation
from losscli.processes.process import FALLBACK_VARIABLE
from losscli.runs.records import BenchResult
from tests import handmade
from tests.parameters import naming

if TYPE_CHECKING:
    from losscli.judge.verdict import Verdict
    from tests.fake_bench import StepTimer
    from tests.standin import Standin

MakeCase = Callable[..., Case]
DATA = Path(__file__).parent / "data"
GOLDEN = DATA / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/data/golden")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Return a function that compares a text with a file, which `pytest --update-golden` writes."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert text == path.read_text(), f"{path}: --update-golden rewrites it"

    return compare


def pytest_configure() -> None:
    """Never test a formula in place of a kernel; restore the default signal handlers.

    A shell's background, or nohup, ignores some signals.
    """
    os.environ.setdefault(FALLBACK_VARIABLE, "error")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def data_directory(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keep every test away from the runs that the user has saved."""
    monkeypatch.setenv("LOSSCLI_DATA_DIR", str(tmp_path_factory.getbasetemp() / "data"))


@pytest.fixture(autouse=True)
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bench in the test's own process unless a test sets the processes: others take seconds."""
    for device in PROCESSES:
        monkeypatch.setitem(PROCESSES, device, 1)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    """Return where kernels run: on the CPU, and with `-m gpu` on a GPU."""
    return str(request.param)


@pytest.fixture
def workshop(tmp_path: Path) -> Standin:
    """Return a machine with stand-in compilers."""
    from tests.standin import Standin

    return Standin(tmp_path)


@pytest.fixture
def config(tmp_path: Path) -> Callable[[str], str]:
    """Return a function that writes a config and returns its name."""

    def write(text: str) -> str:
        path = tmp_path / "config.yaml"
        path.write_text(text)
        return str(path)

    return write


@pytest.fixture(scope="session")
def make_case() -> MakeCase:
    """Make a small float32 mean on the CPU; keywords change what a test is about."""

    def make(loss: str = "smooth_l1", shape: tuple[int, ...] = (37, 101), **changes: Any) -> Case:
        return handmade.case_of(loss, shape, **changes)

    return make


@pytest.fixture
def timer() -> StepTimer:
    """Return a timer without a clock: 1 s a call, 2 s for the reference."""
    from tests.fake_bench import StepTimer
    from tests.fake_time import FakeClock

    return StepTimer(FakeClock())


@pytest.fixture
def bench(timer: StepTimer) -> Callable[..., list[BenchResult]]:
    """Return a function that runs a small config, every contender's samples constant."""
    from tests.fake_bench import run

    return partial(run, timer)


@pytest.fixture
def implementation(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return a function that registers an implementation, of what it is bound to."""

    def register(function: Callable[..., Any], name: str = "theirs") -> str:
        entry = Implementation(name, "", lambda case: function)
        monkeypatch.setitem(IMPLEMENTATIONS, name, entry)
        return name

    return register


@pytest.fixture
def judged(tmp_path: Path) -> Callable[..., Verdict]:
    """Return a function that judges a source quickly, without times unless they are asked for."""
    from losscli.judge.job import Job
    from losscli.judge.judging import judge_job

    def judge(source: str, **options: Any) -> Verdict:
        path = tmp_path / "kernel.py"
        path.write_text(source)
        given: dict[str, Any] = {"device": "cpu", "quick": True, "timed": False} | options
        return judge_job(Job(file=str(path), **given))

    return judge


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that writes a run into the directory that the test runs in."""
    from tests.comparing import writer_in

    return writer_in(tmp_path, monkeypatch)


@pytest.fixture
def slower(write: Callable[..., None]) -> None:
    """Have a baseline and a run whose custom kernel is slower by a tenth."""
    from tests.fabricated import machine

    write("base.json", machine(1))
    write("new.json", machine(2, slowed="custom", by=1.1), "jsonl")


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., None]:
    """Return a function that runs a command, which has to end in one message that says why."""
    from losscli.cli import main

    def run(command: str | Sequence[str], message: str, code: int = 2) -> None:
        arguments = command.split() if isinstance(command, str) else [*command]
        with naming(*arguments, message):
            assert main.run(arguments) == code
            told = capsys.readouterr()
            assert (told.out, told.err.count("\n")) == ("", 1)
            assert told.err.startswith("losscli: error: ")
            assert message in told.err

    return run


@pytest.fixture
def free_address() -> str:
    """Return an address at which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"
