"""A dry run lists what would run, and what would not fit."""

from losscli.cli.dry_run import print_cases
from losscli.config.schema import Config, Exclude, LossChoice


def bytes_of(case, pass_, implementations):
    return case.elements * len(implementations)


CONFIG = Config(
    losses=(LossChoice("mse"), LossChoice("smooth_l1", {"beta": (0.5,)})),
    sizes=((1024,), (4096,)),
    implementations=("custom", "reference", "functional"),
    exclude=(Exclude(loss="mse", size=(4096,)),),
)


def rows(capsys, free):
    print_cases(CONFIG, "cpu", ("forward",), bytes_of, free)
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_each_case_that_is_left_is_a_row_with_its_bytes(capsys):
    _, _, *cases, last = rows(capsys, free=8192)
    assert [" ".join(case.split()) for case in cases] == [
        "mse 1024 float32 mean forward custom, reference, functional 3.0 KiB",
        "smooth_l1 beta=0.5 1024 float32 mean forward custom, reference 2.0 KiB",
        "smooth_l1 beta=0.5 4096 float32 mean forward custom, reference 8.0 KiB",
    ]
    assert last == "3 to run, the largest 8.0 KiB; none too large for the 8.0 KiB free on cpu"


def test_what_does_not_fit_is_marked(capsys):
    _, _, *cases, last = rows(capsys, free=8191)
    assert [case.endswith("does not fit") for case in cases] == [False, False, True]
    assert "; 1 too large for the 8.0 KiB free on cpu" in last
