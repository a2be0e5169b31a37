import errno
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest
from msgspec.structs import replace

from losscli.cli import main
from losscli.errors import EXIT_OK, EXIT_USAGE, UnfitError, UsageError
from losscli.machine import devices
from losscli.processes.lock import Holder
from losscli.runs import files
from losscli.runs.files import held, holder_of, refuse_held
from losscli.runs.saved import runs_directory
from tests.fabricated import machine
from tests.parameters import naming

OTHER = Holder(4711, "node7", "10:21:33")
REFUSED = "is being written by process 4711 on node7 (since 10:21:33). Wait for its end, or choose"


@contextmanager
def held_by_another(output: Path) -> Iterator[None]:
    output.parent.mkdir(parents=True, exist_ok=True)
    with held(output):
        lock_of(output).write_text(json.dumps(asdict(OTHER)))
        yield


def lock_of(output: Path) -> Path:
    return output.with_name(f"{output.name}.lock")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOSSCLI_DATA_DIR", str(tmp_path / "data"))


LONG = (
    "bench --loss mse -o out.json",
    "bench --part 1/2 -o out.json",
    "bench --resume out.json -o out.json",
    "bench --resume out.json -o other.json",
    "bench --resume out.json.journal.jsonl -o b.json",
    "verify --quick -o out.json",
    "judge k.py -o out.json",
    "judge k.py --format jsonl -o out.json",
    "judge k.py --resume out.json",
    "profile --loss mse -o out.json",
    "self-test timer -o out.json",
    "self-test checks -o out.json",
    "self-test judge -o out.json",
)
SHORT = (
    "compare a.json b.json -o out.json",
    "report a.json -o out.json",
    "export a.json --format bencher -o out.json",
    "runs merge part1.json part2.json -o out.json",
    "runs show base -o out.json",
)


def test_output_of_a_running_process_is_refused_before_anything_is_measured(
    monkeypatch, capsys, write
):
    monkeypatch.setattr(devices, "resolve_device", lambda asked: pytest.fail("too late"))
    Path("k.py").write_text("def mse_loss(input, target): ...")
    write("out.json.journal.jsonl", machine(1), "jsonl")
    before = Path("out.json.journal.jsonl").read_text()
    for command in LONG:
        with naming(command):
            with held_by_another(Path("out.json")):
                assert main.run(command.split()) == EXIT_USAGE
            assert f"out.json {REFUSED}" in capsys.readouterr().err
            assert Path("out.json.journal.jsonl").read_text() == before
            assert not list(Path().glob("*.lock"))
    with held_by_another(runs_directory() / "base.jsonl"):
        for command in ("bench --save base", "bench --save base --resume base"):
            assert main.run(command.split()) == EXIT_USAGE
            assert f"base.jsonl {REFUSED}" in capsys.readouterr().err


def test_report_into_the_output_of_a_running_process_is_refused(capsys, write):
    whole = machine(1)
    for name in ("a.json", "b.json"):
        write(name, whole)
    for number in (1, 2):
        cases = {result.case for result in whole.results}
        results = [r for r in whole.results if (r.case == min(cases, key=repr)) == (number == 1)]
        part = {"parts": (f"{number}/2",), "plan": "x", "result_count": len(results)}
        write(f"part{number}.json", replace(whole, results=tuple(results), **part))
    write("data/runs/base.jsonl", whole, "jsonl")
    for command in SHORT:
        with naming(command):
            with held_by_another(Path("out.json")):
                assert main.run(command.split()) == EXIT_USAGE
            assert f"out.json {REFUSED}" in capsys.readouterr().err
            assert not Path("out.json").exists()


def test_output_is_free_after_its_process_even_if_that_was_killed():
    output = Path("out.json").resolve()
    lock_of(output).write_text(json.dumps(asdict(OTHER)))  # of a process that was killed
    assert holder_of(output) is None
    with held(output):
        assert holder_of(output) == Holder.here(holder_of(output).since)
        refuse_held(output)  # its own process may write it
        with pytest.raises(UsageError, match=f"is being written by process {os.getpid()} on "):
            held(output).__enter__()
    assert holder_of(output) is None
    assert os.listdir() == []


def test_lock_that_is_removed_while_it_is_taken_is_taken_again(monkeypatch):
    output, lock = Path("out.json").resolve(), files._lock

    def remove_first(file, **named):
        monkeypatch.setattr(files, "_lock", lock)
        lock_of(output).unlink()
        return lock(file, **named)

    monkeypatch.setattr(files, "_lock", remove_first)
    with held(output):
        assert holder_of(output)


def test_file_system_without_locks_refuses_nothing(monkeypatch):
    def refuse(*arguments):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    output = Path("out.json").resolve()
    with held(output), held(output):
        refuse_held(output)


def test_folder_that_cannot_be_written_is_an_error_at_once():
    with pytest.raises(
        UnfitError, match=r"missing/out\.json\.lock: No such file .* Choose another"
    ):
        held(Path("missing/out.json")).__enter__()


def test_listing_holds_nothing():
    with held_by_another(Path("out.json")):
        assert main.run(["bench", "--loss", "mse", "-o", "out.json", "--list"]) == EXIT_OK
