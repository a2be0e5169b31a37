"""`make mutate`: its mutations fit the current sources, and its report names the results."""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from losscli.build.targets import LOSS, RUNTIME, Target
from losscli.build.targets import TORCH as TORCH_PART
from losscli.cases.axes import DTYPES
from losscli.implementations import IMPLEMENTATIONS
from losscli.losses import LOSSES as REGISTRY
from losscli.losses import ROW_FORMS, WEIGHTED, operators_for
from tests.machinery import MACHINERY
from tools import mutate
from tools.mutation.cpu import CPU
from tools.mutation.cpu_rows import ROWS
from tools.mutation.cuda import CUDA
from tools.mutation.formulas import FORMULAS, mistakes
from tools.mutation.losses import LOSSES
from tools.mutation.mutation import Mutation
from tools.mutation.torch_layer import TORCH
from tools.mutation.trial import Trial
from tools.mutation.workshop import (
    CHECKOUT,
    BuildError,
    Workshop,
    libraries,
    stale,
    stop_if_interrupted,
)

EVERY = (*LOSSES, *FORMULAS, *CPU, *ROWS, *TORCH, *CUDA)
NO_CLAMP = next(m for m in LOSSES if m.mistake == "no clamp")


def test_every_mutation_changes_existing_source():
    for mutation in EVERY:
        text = (CHECKOUT / "csrc" / mutation.file).read_text()

        assert mutation.old in text, mutation.name
        assert text.replace(mutation.old, mutation.new, 1) != text, mutation.name
        assert set(mutation.losses) <= {*REGISTRY, *WEIGHTED, *ROW_FORMS}, mutation.name
        assert set(mutation.dtypes) <= set(DTYPES), mutation.name


@pytest.mark.parametrize(("device", "enough"), [("cpu", 35), ("cuda", 45)])
def test_each_device_has_enough_mutations(device, enough):
    chosen = mutate.mutations(device)

    assert len([m for m in chosen if not (m.equivalent or m.unseen)]) >= enough
    assert len({m.name for m in chosen}) == len(chosen)


def test_each_loss_has_mistakes_in_its_value_each_gradient_and_a_second_derivative():
    for loss, spec in REGISTRY.items():
        header = (CHECKOUT / "csrc" / "losses" / "elementwise" / f"{loss}.h").read_text()

        found = {mutation.mistake: mutation for mutation in mistakes(spec, header)}

        gradients = {f"the gradient of {name}" for name in spec.differentiable}
        assert found.keys() == {"the value", "a second derivative"} | gradients, loss
        assert len({header.replace(m.old, m.new, 1) for m in found.values()}) == len(found), loss
        assert all(header.count(m.old) == 1 for m in found.values()), loss
        assert {m.losses for m in found.values()} == {(loss,)}
        assert any(m.losses == (loss,) for m in (*LOSSES, *FORMULAS)), loss


def test_mutation_keeps_the_modification_time(tmp_path):
    file = tmp_path / NO_CLAMP.file
    file.parent.mkdir(parents=True)
    file.write_text((CHECKOUT / "csrc" / NO_CLAMP.file).read_text())
    before = file.stat().st_mtime_ns

    NO_CLAMP.apply(tmp_path)

    assert NO_CLAMP.old not in file.read_text()
    assert file.stat().st_mtime_ns == before


def test_survivor_is_tried_with_every_sum_strategy():
    ours = {name for name in IMPLEMENTATIONS if name.partition(":")[0] == "custom"}

    assert set(Trial.whole(NO_CLAMP, "cpu").implementations) == ours


TARGETS = [Target(TORCH_PART), Target(RUNTIME, "cuda"), Target(LOSS, "cuda", "hinge")]
KEY = "0123456789abcdef"
INPUTS = {
    f"{folder}-{KEY}/{name}": {f"{folder}-{KEY}/csrc/{file}" for file in files}
    for folder, name, files in (
        ("torch", "torch.nodes.o", ("torch/nodes.cpp", "core/expectation.h")),
        ("runtime_cuda", "core.cuda.runtime.o", ("core/cuda/runtime.cu", "core/expectation.h")),
        (
            "hinge_cuda",
            "elementwise.cuda.library.o",
            ("losses/elementwise/hinge.h", "core/expectation.h"),
        ),
        (
            "hinge_cuda",
            "elementwise.cuda.dense.float32.o",
            ("losses/elementwise/hinge.h", "worker.cuh"),
        ),
        (
            "hinge_cuda",
            "elementwise.cuda.dense.float16.o",
            ("losses/elementwise/hinge.h", "worker.cuh"),
        ),
        (
            "mse_cuda",
            "elementwise.cuda.library.o",
            ("losses/elementwise/mse.h", "core/expectation.h"),
        ),
    )
}


@pytest.mark.parametrize(
    ("file", "whole", "expected"),
    [
        ("torch/nodes.cpp", False, ["torch.nodes.o"]),
        ("core/cuda/runtime.cu", False, ["core.cuda.runtime.o"]),
        ("core/expectation.h", False, ["elementwise.cuda.library.o"]),
        ("worker.cuh", False, ["elementwise.cuda.dense.float32.o"]),
        (
            "worker.cuh",
            True,
            ["elementwise.cuda.dense.float32.o", "elementwise.cuda.dense.float16.o"],
        ),
        (
            "losses/elementwise/hinge.h",
            False,
            ["elementwise.cuda.library.o", "elementwise.cuda.dense.float32.o"],
        ),
    ],
)
def test_libraries_without_the_mutation_are_not_rebuilt(file, whole, expected):
    mutation = Mutation(file, "old", "new", "a mistake", losses=("hinge",))
    found = stale(mutation, TARGETS, INPUTS, whole=whole)

    assert [path.partition("/")[2] for path in found] == expected


def names(mutation, device, whole):
    return {target.name for target in libraries(mutation, device, whole=whole)}


def test_mutation_builds_the_libraries_that_its_trial_loads():
    plain = Mutation("core/dtype.h", "old", "new", "a mistake", losses=("hinge",))
    tree = replace(plain, implementations=("custom:tree",))

    assert names(plain, "cpu", whole=False) == {"torch", "hinge_cpu"}
    assert names(tree, "cuda", whole=False) == {"torch", "runtime_cuda", "hinge_strategies_cuda"}
    kinds = {f"{loss}{part}_cpu" for loss in MACHINERY for part in ("", "_strategies")}
    assert names(plain, "cpu", whole=True) == {"torch", *kinds}


def test_survivor_is_tried_with_the_losses_that_reach_every_loop_and_its_own():
    own = Mutation("losses/elementwise/other.h", "old", "new", "a mistake", losses=("other", "mse"))

    assert Trial.whole(own, "cpu").losses == (*MACHINERY, "other")
    assert {"other_cpu", "other_strategies_cpu"} < names(own, "cpu", whole=True)


def test_forms_of_a_loss_over_rows_have_its_kernels_and_are_what_a_survivor_is_put_to():
    mutation = ROWS[0]
    every = {form for form in ROW_FORMS if operators_for(form) == ("cross_entropy",)}

    for whole in (False, True):
        assert names(mutation, "cpu", whole=whole) == {"torch", "cross_entropy_cpu"}
    weighted = replace(mutation, losses=("weighted_cross_entropy",))
    assert names(weighted, "cpu", whole=False) == {"torch", "cross_entropy_cpu"}
    trial = Trial.whole(mutation, "cpu")
    assert set(trial.losses) == every
    assert trial.implementations == ("custom",)


def put(monkeypatch, tmp_path, program, patience=30.0):
    """Return what kills a copy whose trial is a test's program."""
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
def test_exit_of_a_trial_names_the_killing_check(monkeypatch, tmp_path, program, death):
    assert put(monkeypatch, tmp_path, program) == death


def test_hanging_trial_is_killed(monkeypatch, tmp_path):
    program = "import threading; print('value: custom', flush=True); threading.Event().wait()"

    death = put(monkeypatch, tmp_path, program, patience=0.2)

    assert death == mutate.Death("hang", "0 s after value: custom")


@pytest.fixture
def without_builds(monkeypatch):
    """Broken mutants and what they were built for, without a compiler."""
    monkeypatch.setattr(Workshop, "build_original", lambda self, mutations: None)
    monkeypatch.setattr(Workshop, "build_mutant", lambda self, mutation, number, whole: Path("x"))


def killed_by(monkeypatch, *deaths):
    remaining = list(deaths)
    monkeypatch.setattr(mutate, "killer", lambda *given: remaining.pop(0))


@pytest.mark.usefixtures("without_builds")
def test_surviving_mutation_exits_1(monkeypatch, capsys):
    killed_by(monkeypatch, None, None)

    assert mutate.main(["--only", "no clamp"]) == 1
    out = capsys.readouterr().out
    assert "losses/elementwise/hinge.h, no clamp: SURVIVED (0 s)" in out
    assert "0 of 1 killed, 1 SURVIVED" in out


@pytest.mark.usefixtures("without_builds")
def test_killing_check_is_named_and_recorded(monkeypatch, capsys, tmp_path):
    killed_by(monkeypatch, None, mutate.Death("value", "hinge"))
    record = tmp_path / "record.json"

    assert mutate.main(["--only", "no clamp", "-o", str(record)]) == 0
    assert "no clamp: killed by value, hinge (0 s)\n1 of 1 killed" in capsys.readouterr().out
    (result,) = json.loads(record.read_text())["results"]
    assert (result["status"], result["by"]) == ("killed", "value")


@pytest.mark.usefixtures("without_builds")
def test_ctrl_c_keeps_what_was_found(monkeypatch, tmp_path):
    found = [mutate.Death("value", "hinge")]

    def killer(root, trial, patience):
        stop_if_interrupted(-signal.SIGINT if not found else 0)
        return found.pop()

    monkeypatch.setattr(mutate, "killer", killer)
    record = tmp_path / "record.json"

    code = mutate.main(
        ["--only", "no clamp", "--only", "< for <= where two branches meet", "-o", str(record)]
    )

    assert code == 130
    (result,) = json.loads(record.read_text())["results"]
    assert result["status"] == "killed"


@pytest.mark.usefixtures("without_builds")
@pytest.mark.parametrize(("death", "code"), [(None, 0), (mutate.Death("value", ""), 1)])
def test_equivalent_mutation_must_survive(monkeypatch, death, code):
    killed_by(monkeypatch, death)

    assert mutate.main(["--only", "< for <= where two branches meet"]) == code


@pytest.mark.usefixtures("without_builds")
def test_mutation_that_does_not_compile_is_not_a_kill(monkeypatch, capsys):
    def fail(self, mutation, number, whole):
        raise BuildError("expected ';'")

    monkeypatch.setattr(Workshop, "build_mutant", fail)

    assert mutate.main(["--only", "no clamp"]) == 1
    assert "no clamp: DOES NOT BUILD, expected ';'" in capsys.readouterr().out
