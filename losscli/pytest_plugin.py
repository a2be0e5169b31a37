"""The pytest fixture ``losscli_bench``; pytest always imports this, so it imports little."""

import contextlib
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from losscli.runs.records import BenchResult

Kernel = str | Path | Callable[..., Any]
"""``FILE.py``, ``FILE.py:NAME``, or a function or class at the top of a file."""


class LosscliBench:
    """Judges and times kernels; a test fails with the report of losscli."""

    def __init__(self, test: Path, folder: Path) -> None:
        self._test, self._folder = test, folder

    def judge(self, kernel: Kernel, *options: str) -> str:
        """Judge a kernel as `losscli judge` does, and return the report.

        The test fails if the kernel is not right, and is skipped where it cannot run.

        Args:
            kernel: a file next to the test or below the working directory, or a function.
            *options: of `losscli judge`: ``"--loss", "mse", "--no-time"``.
        """
        return self._run("judge", self._named(kernel), *options)

    def time(
        self, kernel: Kernel, *options: str, faster_than: str = "", by: float = 1.0
    ) -> "list[BenchResult]":
        """Time a kernel and the reference as `losscli bench` does, and return its results.

        The test fails if the kernel is wrong, and is skipped where it cannot run.

        Args:
            kernel: see :meth:`judge`.
            *options: of `losscli bench`: ``"--loss", "mse", "--size", "1Kx1K"``.
            faster_than: an implementation. The test fails, with the report, if the kernel's whole
                interval over it is below ``by``.
            by: the required speedup.
        """
        from losscli.render.records import render
        from losscli.runs.reading import read_run
        from losscli.runs.records import BenchResult

        name, record = self._named(kernel), self._folder / "bench.json"
        record.unlink(missing_ok=True)
        others = dict.fromkeys((faster_than or "reference",))
        words = ("--impl", ",".join((name, *others)), "--format", "json", "-o", str(record))
        told = self._run("bench", *options, *words)
        if not record.exists():
            pytest.fail(f"losscli bench kept no record\n{told}", pytrace=False)
        run = read_run(record, "bench")
        found = [r for r in run.of(BenchResult) if r.implementation == name]
        if not found:
            pytest.fail(f"{name} was not timed\n\n{render(run, 'table')}", pytrace=False)
        for result in found if faster_than else ():
            if (ratio := result.ratios.get(faster_than)) is None or ratio.high < by:
                value = f"{ratio.value:.2f} times as fast" if ratio else "not timed next to it"
                asked = f"{name} has to be {by:g} times as fast as {faster_than}, but is {value}"
                pytest.fail(f"{asked}\n\n{render(run, 'table')}", pytrace=False)
        return found

    def _named(self, kernel: Kernel) -> str:
        if callable(kernel):
            name, file = getattr(kernel, "__qualname__", ""), None
            with contextlib.suppress(TypeError):
                file = inspect.getsourcefile(kernel)
            if not file or not name.isidentifier():
                raise ValueError(f"{kernel!r} is not defined at the top of a file. Name a FILE.py.")
            return f"{file}:{name}"
        path, colon, name = str(kernel).partition(".py:")
        beside = self._test.parent / (f"{path}.py" if colon else path)
        return f"{beside}{colon[-1:]}{name}" if beside.is_file() else str(kernel)

    def _run(self, *words: str) -> str:
        from losscli.errors import EXIT_OK, EXIT_UNFIT
        from losscli.machine.commands import run

        # A summary of the step would have a report for each test.
        environment = {k: v for k, v in os.environ.items() if k != "GITHUB_STEP_SUMMARY"}
        done = run([sys.executable, "-m", "losscli", *words], env=environment)
        report = f"{done.stdout}{done.stderr}".strip()
        if done.returncode == EXIT_UNFIT:
            pytest.skip(report)
        if done.returncode != EXIT_OK:
            pytest.fail(f"losscli {words[0]} exits with {done.returncode}\n{report}", pytrace=False)
        return report


@pytest.fixture
def losscli_bench(request: pytest.FixtureRequest, tmp_path: Path) -> LosscliBench:
    """Judge or time a kernel: see :class:`LosscliBench`."""
    return LosscliBench(request.path, tmp_path)
