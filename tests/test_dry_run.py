"""A dry run lists what would run, and what would not fit."""

from dataclasses import replace

import pytest

from losscli.axes import PASSES
from losscli.cli.dry_run import print_cases, print_plans
from losscli.config.schema import Config, Exclude, LossChoice, Timing


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


MSE = "mse 1024 float32 mean forward custom, reference, functional 3.0 KiB"
HALF = "smooth_l1 beta=0.5 1024 float32 mean forward custom, reference 2.0 KiB"
LARGE = "smooth_l1 beta=0.5 4096 float32 mean forward custom"


@pytest.mark.parametrize(
    ("free", "large", "summary"),
    [
        (8192, f"{LARGE}, reference 8.0 KiB", "8.0 KiB; none too large for the 8.0 KiB"),
        (4096, f"{LARGE} 4.0 KiB left out: reference", "4.0 KiB; 1 too large for the 4.0 KiB"),
        (4095, f"{LARGE}, reference 8.0 KiB does not fit", "; 1 too large for the 4.0 KiB"),
    ],
)
def test_dry_run_has_what_runs_of_each_case_and_what_does_not_fit(capsys, free, large, summary):
    print_cases(CONFIG, "cpu", bytes_of, fit, free)
    _, _, *cases, last, excluded = capsys.readouterr().out.splitlines()
    assert [" ".join(case.split()) for case in cases] == [MSE, HALF, large]
    assert " rows to run, the largest " in last
    assert last.endswith(f"{summary} free on cpu")
    assert excluded.startswith("excluded 3 rows by the config's rule {loss: mse, size: 4096}")


def test_dry_run_lists_the_cases_of_all_tables(capsys):
    large = replace(CONFIG, losses=CONFIG.losses[:1], sizes=((1024,),), passes=PASSES)
    tables = Config(tables=(large, replace(large, implementations=("custom",))))
    print_cases(tables, "cpu", bytes_of, fit, 4096)
    _, _, *cases, _ = capsys.readouterr().out.splitlines()
    assert [" ".join(case.split()) for case in cases] == [
        MSE,
        MSE.replace("forward", "forward_backward"),
        "mse 1024 float32 mean forward custom 1.0 KiB",
        "mse 1024 float32 mean forward_backward custom 1.0 KiB",
    ]


def plans(capsys, device, *modes):
    config = replace(
        CONFIG,
        losses=CONFIG.losses[:1],
        sizes=((2**20,),),
        implementations=("custom", "reference"),
        timing=Timing(mode=modes),
    )
    print_plans(config, device, 2**40)
    _, _, *planned, last = capsys.readouterr().out.splitlines()
    return [" ".join(row.split()) for row in planned], last


def test_dry_run_plans_each_mode(capsys):
    planned, last = plans(capsys, "cuda:0", "device", "graph")
    name = "mse 1048576 float32 mean fwd"
    assert [row.partition(" custom")[0] for row in planned[::2]] == [name, f"{name} graph"]
    assert last.startswith("2 rows to run, ")

    planned, last = plans(capsys, "cpu", "graph", "host")
    assert planned[0] == f"{name} graph custom, reference a CUDA graph needs a GPU"
    assert planned[1].startswith(f"{name} host custom 8.0 MiB ")
    assert last.startswith("1 row to run, ")
