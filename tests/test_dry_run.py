"""A dry run lists what would run, and what would not fit."""

from dataclasses import replace

from losscli.cases.axes import PASSES
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


def rows(capsys, free):
    print_cases(CONFIG, "cpu", bytes_of, fit, free)
    told = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert told[-1].startswith("excluded 3 rows by the config's rule {loss: mse, size: 4096}")
    return told[:-1]


def test_dry_run_has_a_row_with_bytes_for_each_case(capsys):
    _, _, *cases, last = rows(capsys, free=8192)
    assert [" ".join(case.split()) for case in cases] == [
        "mse 1024 float32 mean forward custom, reference, functional 3.0 KiB",
        "smooth_l1 beta=0.5 1024 float32 mean forward custom, reference 2.0 KiB",
        "smooth_l1 beta=0.5 4096 float32 mean forward custom, reference 8.0 KiB",
    ]
    assert last == "3 rows to run, the largest 8.0 KiB; none too large for the 8.0 KiB free on cpu"


def test_dry_run_leaves_out_implementations_that_do_not_fit(capsys):
    _, _, *cases, last = rows(capsys, free=4096)
    assert [" ".join(case.split()) for case in cases] == [
        "mse 1024 float32 mean forward custom, reference, functional 3.0 KiB",
        "smooth_l1 beta=0.5 1024 float32 mean forward custom, reference 2.0 KiB",
        "smooth_l1 beta=0.5 4096 float32 mean forward custom 4.0 KiB left out: reference",
    ]
    assert last == ("3 rows to run, the largest 4.0 KiB; 1 too large for the 4.0 KiB free on cpu")


def test_dry_run_marks_a_case_that_does_not_fit(capsys):
    _, _, *cases, last = rows(capsys, free=4095)
    assert [case.endswith("does not fit") for case in cases] == [False, False, True]
    assert "custom, reference 8.0 KiB does not fit" in " ".join(cases[-1].split())
    assert "; 1 too large for the 4.0 KiB free on cpu" in last


def test_dry_run_lists_the_cases_of_all_tables(capsys):
    large = replace(CONFIG, losses=CONFIG.losses[:1], sizes=((1024,),), passes=PASSES)
    tables = Config(tables=(large, replace(large, implementations=("custom",))))
    print_cases(tables, "cpu", bytes_of, fit, 4096)
    _, _, *cases, _ = capsys.readouterr().out.splitlines()
    assert [" ".join(case.split()) for case in cases] == [
        "mse 1024 float32 mean forward custom, reference, functional 3.0 KiB",
        "mse 1024 float32 mean forward_backward custom, reference, functional 3.0 KiB",
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
    name = "mse 1048576 float32 mean"
    assert [row.partition(" custom")[0] for row in planned[::2]] == [
        f"{name} fwd",
        f"{name} fwd graph",
    ]
    assert last.startswith("2 rows to run, ")


def test_dry_run_of_graphs_without_a_gpu_has_the_reason(capsys):
    planned, last = plans(capsys, "cpu", "graph", "host")
    name = "mse 1048576 float32 mean"
    assert planned[0] == f"{name} fwd graph custom, reference a CUDA graph needs a GPU"
    assert planned[1].startswith(f"{name} fwd host custom 8.0 MiB ")
    assert last.startswith("1 row to run, ")
