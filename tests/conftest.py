"""Fixtures that all tests share."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from losscli.cases import Case
from losscli.config.schema import PROCESSES
from losscli.losses import LOSSES

MakeCase = Callable[..., Case]


def pytest_configure() -> None:
    """Restore the default signal handlers: a shell's background, or nohup, ignores some signals."""
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

    def make(
        loss: str = "smooth_l1", shape: tuple[int, ...] = (37, 101), **changes: object
    ) -> Case:
        spec = LOSSES[loss]
        fields: dict[str, object] = {
            "target_shape": spec.default_target_shape(shape),
            "dtype": "float32",
            "reduction": "mean",
            "device": "cpu",
            "params": {},
            "distribution": "uniform",
            "seed": 0,
        }
        fields |= changes
        fields["params"] = spec.resolve(fields["params"])
        return Case(loss=loss, shape=shape, **fields)

    return make
