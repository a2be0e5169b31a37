"""`make mutate`: its mutations fit the sources as they are, and its lines say what came of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from losscli.config.schema import DTYPES
from losscli.implementations import IMPLEMENTATIONS
from losscli.losses import LOSSES as REGISTRY
from tests import mutate
from tests.mutation.cpu import CPU
from tests.mutation.cuda import CUDA
from tests.mutation.losses import LOSSES
from tests.mutation.mutation import Mutation
from tests.mutation.trial import Trial
from tests.mutation.workshop import CHECKOUT, BuildError, Workshop, stale

EVERY = (*LOSSES, *CPU, *CUDA)
NO_CLAMP = next(m for m in LOSSES if m.mistake == "no clamp")


@pytest.mark.parametrize("mutation", EVERY, ids=lambda m: m.name)
def test_a_mutation_changes_what_is_there(mutation):
    text = (CHECKOUT / "csrc" / mutation.file).read_text()

    assert mutation.old in text
    assert text.replace(mutation.old, mutation.new, 1) != text
    assert set(mutation.losses) <= set(REGISTRY)
    assert set(mutation.dtypes) <= set(DTYPES)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_there_are_enough_for_a_device(device):
    chosen = mutate.mutations(device)

    assert len([m for m in chosen if not (m.equivalent or m.unseen)]) >= 20
    assert len({m.name for m in chosen}) == len(chosen)


def test_a_mutation_leaves_the_time_of_the_file(tmp_path):
    file = tmp_path / "losses" / "hinge.h"
    file.parent.mkdir()
    file.write_text((CHECKOUT / "csrc" / NO_CLAMP.file).read_text())
    before = file.stat().st_mtime_ns

    NO_CLAMP.apply(tmp_path)

    assert NO_CLAMP.old not in file.read_text()
    assert file.stat().st_mtime_ns == before


def test_what_survives_is_put_to_every_way_to_finish_a_sum():
    ours = {name for name in IMPLEMENTATIONS if name.partition(":")[0] == "custom"}

    assert set(Trial.whole("cpu").implementations) == ours


INPUTS = {
    name: {"csrc/losses/hinge.h", f"csrc/{source}"}
    for name, source in {
        "cpu.engine.o": "cpu/engine.cpp",
        "cpu.instantiate.hinge.o": "cpu/tile.h",
        "cpu.instantiate.mse.o": "cpu/tile.h",
        "cuda.instantiate.hinge.float32.o": "cuda/reduce.cuh",
        "cuda.instantiate.hinge.float16.o": "cuda/reduce.cuh",
    }.items()
}


@pytest.mark.parametrize(
    ("file", "whole", "expected"),
    [
        ("cpu/engine.cpp", False, ["cpu.engine.o"]),
        ("cpu/tile.h", False, ["cpu.instantiate.hinge.o"]),
        ("cpu/tile.h", True, ["cpu.instantiate.hinge.o", "cpu.instantiate.mse.o"]),
        ("cuda/reduce.cuh", False, ["cuda.instantiate.hinge.float32.o"]),
        (
            "losses/hinge.h",
            False,
            ["cpu.instantiate.hinge.o", "cuda.instantiate.hinge.float32.o"],
        ),
        ("losses/hinge.h", True, list(INPUTS)),
    ],
)
def test_what_does_not_show_a_mutation_is_not_built_anew(file, whole, expected):
    mutation = Mutation(file, "old", "new", "a mistake", losses=("hinge",))

    assert list(stale(mutation, INPUTS, whole=whole)) == expected


def put(monkeypatch, tmp_path, program, patience=30.0):
    """Return what kills a copy whose trial is a program of a test."""
    monkeypatch.setattr(mutate, "command", lambda trial: [sys.executable, "-c", program])
    return mutate.killer(tmp_path, Trial("cpu", "smoke"), patience)


@pytest.mark.parametrize(
    ("program", "death"),
    [
        ("print('value: custom, mse')", None),
        (
            "print('value: custom, mse\\nexpected 1, got 2'); raise SystemExit(10)",
            mutate.Death("value", "custom, mse: expected 1, got 2"),
        ),
        (
            "print('value: custom, mse'); raise SystemExit('no memory')",
            mutate.Death("crash", "exit code 1: no memory"),
        ),
        (
            "import os; os.kill(os.getpid(), 11)",
            mutate.Death("crash", "exit code -11: nothing said"),
        ),
    ],
)
def test_how_a_trial_ends_tells_what_killed(monkeypatch, tmp_path, program, death):
    assert put(monkeypatch, tmp_path, program) == death


def test_who_hangs_is_ended(monkeypatch, tmp_path):
    program = "import threading; print('value: custom', flush=True); threading.Event().wait()"

    death = put(monkeypatch, tmp_path, program, patience=0.2)

    assert death == mutate.Death("hang", "0 s after value: custom")


@pytest.fixture
def without_builds(monkeypatch):
    """Mutants that are broken, and what they were built for, without a compiler."""
    monkeypatch.setattr(Workshop, "build_original", lambda self: None)
    monkeypatch.setattr(Workshop, "build_mutant", lambda self, mutation, number, whole: Path("x"))


def killed_by(monkeypatch, *deaths):
    remaining = list(deaths)
    monkeypatch.setattr(mutate, "killer", lambda *given: remaining.pop(0))


@pytest.mark.usefixtures("without_builds")
def test_a_survivor_of_everything_ends_with_1(monkeypatch, capsys):
    killed_by(monkeypatch, None, None)

    assert mutate.main(["--only", "no clamp"]) == 1
    out = capsys.readouterr().out
    assert "losses/hinge.h, no clamp: SURVIVED (0 s)" in out
    assert "0 of 1 killed, 1 SURVIVED" in out


@pytest.mark.usefixtures("without_builds")
def test_who_kills_is_named_and_kept(monkeypatch, capsys, tmp_path):
    killed_by(monkeypatch, None, mutate.Death("value", "hinge"))
    record = tmp_path / "record.json"

    assert mutate.main(["--only", "no clamp", "-o", str(record)]) == 0
    assert "no clamp: killed by value, hinge (0 s)\n1 of 1 killed" in capsys.readouterr().out
    (result,) = json.loads(record.read_text())["results"]
    assert (result["status"], result["by"]) == ("killed", "value")


@pytest.mark.usefixtures("without_builds")
@pytest.mark.parametrize(("death", "code"), [(None, 0), (mutate.Death("value", ""), 1)])
def test_what_is_equivalent_must_survive(monkeypatch, death, code):
    killed_by(monkeypatch, death)

    assert mutate.main(["--only", "< for <= at the kink"]) == code


@pytest.mark.usefixtures("without_builds")
def test_what_does_not_compile_is_no_kill(monkeypatch, capsys):
    def fail(self, mutation, number, whole):
        raise BuildError("expected ';'")

    monkeypatch.setattr(Workshop, "build_mutant", fail)

    assert mutate.main(["--only", "no clamp"]) == 1
    assert "no clamp: DOES NOT BUILD, expected ';'" in capsys.readouterr().out
