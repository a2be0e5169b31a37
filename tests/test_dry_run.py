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


def plans(device, *modes):
    config = replace(
        CONFIG,
        losses=CONFIG.losses[:1],
        sizes=((2**20,),),
        implementations=("custom", "reference"),
        timing=Timing(mode=modes),
    )
    print_plans(config, device, 2**40)


def test_dry_run_has_what_runs_of_each_case_and_what_does_not_fit(capsys, golden):
    for free in (8192, 4096, 4095):
        print_cases(CONFIG, "cpu", bytes_of, fit, free)
    large = replace(CONFIG, losses=CONFIG.losses[:1], sizes=((1024,),), passes=PASSES)
    tables = Config(tables=(large, replace(large, implementations=("custom",))))
    print_cases(tables, "cpu", bytes_of, fit, 4096)
    golden("dry_run.txt", capsys.readouterr().out)


def test_dry_run_plans_each_mode(capsys, golden):
    plans("cuda:0", "device", "graph")
    plans("cpu", "graph", "host")
    golden("dry_run_of_modes.txt", capsys.readouterr().out)
