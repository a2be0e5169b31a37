"""What can be known without a build is said before one, and before any process is started."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from losscli.bench.plan import able, libraries_of
from losscli.bench.plan import plan as plan_bench
from losscli.cases.axes import PASSES
from losscli.cli import dry_run, main
from losscli.cli.dry_run import print_cases, print_plans
from losscli.config.loader import load_config
from losscli.config.schema import Config, Exclude, LossChoice, Timing
from losscli.errors import EXIT_UNFIT, EXIT_USAGE
from losscli.implementations.builtin import libraries, of_file
from losscli.implementations.source import Source
from losscli.judge.against_loss import KnownLoss
from losscli.judge.job import Job
from losscli.judge.judging import Judging
from losscli.operators import loading
from losscli.processes import Process
from losscli.verify.runner import plan as plan_verify
from losscli.verify.runner import possible
from tests.fabricated import machine

MSE = ["--device", "cpu", "--loss", "mse", "--dtype", "float32"]
LARGE = [*MSE, "--size", "1048576x1048576"]
NO_ROOM = "nothing could run: needs "
KILLED = "holds the finished cases of a run that was killed"


@pytest.fixture
def neither_build_nor_start(monkeypatch, tmp_path, write):
    """Fail a test that builds or starts anything; leave the journals of killed runs."""
    monkeypatch.setattr(loading, "_obtain", lambda targets: pytest.fail("builds"))
    monkeypatch.setattr(Process, "__init__", lambda *given, **named: pytest.fail("starts"))
    monkeypatch.setenv("LOSSCLI_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    Path("nothing.yaml").write_text("{losses: [mse], sizes: [8], exclude: [{size: 8}]}")
    write("out.json.journal.jsonl", machine(1), "jsonl")
    write("data/runs/base.jsonl.journal.jsonl", machine(1), "jsonl")


SAID = [
    (["bench", *LARGE], EXIT_UNFIT, NO_ROOM),
    (["bench", *LARGE, "--processes", "4"], EXIT_UNFIT, NO_ROOM),
    (["bench", *MSE, "--impl", "liger"], EXIT_UNFIT, "liger has no mse"),
    (["bench", *MSE, "--mode", "graph"], EXIT_UNFIT, "needs a GPU"),
    (["bench", "-c", "nothing.yaml", "--device", "cpu"], EXIT_USAGE, "nothing is left to run"),
    (["bench", *MSE, "-o", "out.json"], EXIT_USAGE, KILLED),
    (["bench", *MSE, "--save", "base"], EXIT_USAGE, KILLED),
    (["verify", *LARGE, "--check", "value"], EXIT_UNFIT, NO_ROOM),
    (["verify", *MSE, "--check", "graphs"], EXIT_UNFIT, "only on a GPU"),
    (["verify", "--quick", "-o", "out.json"], EXIT_USAGE, KILLED),
    (["profile", *LARGE], EXIT_UNFIT, "needs "),
    (["profile", *MSE, "--size", "8x8", "--impl", "liger"], EXIT_UNFIT, "liger has no mse"),
]


@pytest.mark.usefixtures("neither_build_nor_start")
@pytest.mark.parametrize(("arguments", "code", "told"), SAID)
def test_command_that_cannot_run_fails_before_it_builds_or_starts_processes(
    capsys, arguments, code, told
):
    assert main.run(arguments) == code
    assert told in capsys.readouterr().err


def test_size_that_cannot_be_timed_is_said_before_judge_builds(tmp_path):
    path = tmp_path / "k.py"
    path.write_text("def mse_loss(input, target): return ((input - target) ** 2).mean()")
    job = Job(file=str(path), loss="mse", sizes=((8, 8), (2**20, 2**20)))
    file, notes = Source.read(str(path)), []
    against = KnownLoss(job, "cpu", of_file(file), 0)
    judging: Any = SimpleNamespace(job=job, device="cpu", against=against, notify=notes.append)
    Judging._tell_misfits(judging)
    (note,) = notes
    assert note.startswith("mse 1048576x1048576 float32 mean is not going to be timed: needs ")


def test_only_what_can_run_is_built(config):
    small = "{title: small, losses: [mse], sizes: [8x8]}"
    large = "{title: large, losses: [huber], sizes: [1Mx1M]}"
    loaded = load_config(config(f"{{dtypes: [float32], tables: [{small}, {large}]}}"), {})
    tasks = plan_bench(loaded, "cpu")
    assert {target.name for target in libraries_of(able(tasks, 2**33), "cpu")} == {
        *("torch", "mse_cpu", "bench_cpu")
    }
    assert libraries_of(able(tasks, 0), "cpu") == []
    jobs = plan_verify(loaded, "cpu", lambda device: 2**33, ["value"])
    assert {target.name for target in libraries(possible(jobs, 2**33), "cpu")} == {
        *("torch", "mse_cpu")
    }
    assert libraries(possible(jobs, 0), "cpu") == []


def bytes_of(case, pass_, implementations):
    return case.elements * len(implementations)


def fit(case, pass_, implementations, free):
    """Leave out the last ones until the others fit."""
    able = list(implementations)
    while able and bytes_of(case, pass_, able) > free:
        able.pop()
    return able, {i.name: "" for i in implementations if i not in able}


CONFIG = Config(
    losses=(LossChoice("mse"), LossChoice("smooth_l1", {"beta": (0.5,)})),
    sizes=((1024,), (4096,)),
    passes=("forward",),
    implementations=("custom", "reference", "functional"),
    exclude=(Exclude(loss="mse", size=(4096,)),),
)


def plans(device, *modes):
    config = replace(
        CONFIG,
        losses=CONFIG.losses[:1],
        sizes=((2**20,),),
        implementations=("custom", "reference"),
        timing=Timing(mode=modes),
    )
    print_plans(config, device, 2**40)


def test_dry_run_has_what_runs_of_each_case_and_what_does_not_fit(capsys, golden, monkeypatch):
    monkeypatch.setattr(dry_run, "bytes_to_verify", bytes_of)
    monkeypatch.setattr(dry_run, "choose_fitting", fit)
    for free in (8192, 4096, 4095):
        print_cases(CONFIG, "cpu", free)
    large = replace(CONFIG, losses=CONFIG.losses[:1], sizes=((1024,),), passes=PASSES)
    tables = Config(tables=(large, replace(large, implementations=("custom",))))
    print_cases(tables, "cpu", 4096)
    golden("dry_run.txt", capsys.readouterr().out)


def test_dry_run_plans_each_mode(capsys, golden):
    plans("cuda:0", "device", "graph")
    plans("cpu", "graph", "host")
    golden("dry_run_of_modes.txt", capsys.readouterr().out)
