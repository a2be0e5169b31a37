"""``--filter``: the rows of a config that it keeps."""

from dataclasses import replace

import pytest

from losscli.bench.plan import plan
from losscli.cases.axes import PASSES
from losscli.cli.main import run
from losscli.config.filters import parse_filter
from losscli.config.schema import Condition, Config, Exclude, LossChoice

CONFIG = Config(
    losses=(LossChoice("mse"), LossChoice("smooth_l1", {"beta": (0.5, 1.0)})),
    sizes=((1024,), (8, 8)),
    dtypes=("float32", "bfloat16"),
    implementations=("custom", "custom:tree", "reference"),
)


def left(*filters, **changes):
    """Return case, pass and implementation of what is kept."""
    config = Config(**{**vars(CONFIG), **changes, "filters": tuple(map(parse_filter, filters))})
    return {
        (task.case.name, pass_, name)
        for task in plan(config, "cpu")
        for pass_, names in task.passes.items()
        for name in names
    }


ALL = left()


KEEPS = {
    "loss=mse": lambda case, pass_, name: case.startswith("mse "),
    "loss!=mse": lambda case, pass_, name: not case.startswith("mse "),
    "dtype=bfloat16": lambda case, pass_, name: "bfloat16" in case,
    "size=8x8": lambda case, pass_, name: " 8x8 " in case,
    "size=1K": lambda case, pass_, name: " 1024 " in case,
    "size=512..1K*2": lambda case, pass_, name: " 1024 " in case,
    "pass=forward": lambda case, pass_, name: pass_ == "forward",
    "impl=custom": lambda case, pass_, name: name == "custom",
    "impl=custom*": lambda case, pass_, name: name != "reference",
    "implementation=reference|custom": lambda case, pass_, name: name != "custom:tree",
    "beta=0.5": lambda case, pass_, name: "beta=0.5" in case,
    "beta=1": lambda case, pass_, name: case.startswith("smooth_l1 ") and "beta" not in case,
    "beta!=0.5": lambda case, pass_, name: "beta" not in case,
    " loss=mse , dtype=float32 , impl!=custom ": lambda case, pass_, name: (
        case.startswith("mse ") and "b" not in case.split()[2] and name != "custom"
    ),
}


def test_filter_keeps_rows_that_meet_all_conditions():
    for filter, keeps in KEEPS.items():
        kept = left(filter)
        assert kept == {entry for entry in ALL if keeps(*entry)}, filter
        assert set() < kept < ALL


def test_row_has_to_match_one_of_several_filters():
    one, other = "loss=mse,pass=forward", "beta=0.5"
    assert left(one, other) == left(one) | left(other)


def test_filter_does_not_restore_excluded_rows():
    kept = left("loss=mse", exclude=(Exclude(dtype="float32"),))
    assert kept == left("loss=mse,dtype=bfloat16")


def test_filter_matches_a_table_by_title_or_pattern():
    for filter, titles in {
        "table=large": {"large"},
        "table=large*": {"large", "large [GPU]"},
        "table=?mall": {"small"},
        "table!=large*": {"small"},
        "table=large [GPU]": {"large [GPU]"},
    }.items():
        kept = replace(CONFIG, filters=(parse_filter(filter),))
        tables = tuple(replace(kept, title=t) for t in ("small", "large", "large [GPU]"))
        assert {task.table for task in plan(Config(tables=tables), "cpu")} == titles, filter


def test_filter_conditions_are_parsed():
    assert parse_filter("loss!=mse|hinge,size=8x8") == (
        Condition("loss", ("mse", "hinge"), negated=True),
        Condition("size", ((8, 8),)),
    )
    assert parse_filter("pass=forward*") == (Condition("pass", PASSES),)


@pytest.mark.parametrize("command", ["bench", "verify"])
def test_option_list_prints_case_names(command, capsys):
    arguments = ("--device", "cpu", "--loss", "mse", "--size", "8x8,4", "--dtype", "float32")
    given = [command, *arguments, "--reduction", "mean,sum", "--filter"]
    assert run([*given, "size=8x8", "--list"]) == 0
    names = [line.split(" normal")[0] for line in capsys.readouterr().out.splitlines()]
    assert names == ["mse 8x8 float32 mean", "mse 8x8 float32 sum"]


def test_size_option_takes_ranges(capsys):
    sizes = ("--size", "1K..4K*2", "--size", "pow2[3:9:3]")
    assert run(["bench", "--device", "cpu", "--loss", "mse", *sizes, "--list"]) == 0
    found = [line.split()[1] for line in capsys.readouterr().out.splitlines()]
    assert found == ["1024", "2048", "4096", "8", "64", "512"]
