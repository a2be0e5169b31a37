import json
from dataclasses import replace

import pytest

from losscli.bench.plan import plan
from losscli.cases.axes import PASSES
from losscli.cli import main
from losscli.cli.main import run
from losscli.config.expansion import excluded
from losscli.config.filters import parse_filter
from losscli.config.loader import load_config
from losscli.config.schema import Condition, Config, Exclude, LossChoice
from losscli.render.records import render
from losscli.runs.reading import read_run
from losscli.runs.records import Exclusion

CONFIG = Config(
    losses=(LossChoice("mse"), LossChoice("smooth_l1", {"beta": (0.5, 1.0)})),
    sizes=((1024,), (8, 8)),
    dtypes=("float32", "bfloat16"),
    implementations=("custom", "custom:tree", "reference"),
)


def left(*filters, **changes):
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


def test_row_has_to_match_one_of_several_filters_and_excluded_rows_stay_so():
    one, other = "loss=mse,pass=forward", "beta=0.5"
    assert left(one, other) == left(one) | left(other)
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


WHERE = ("--device", "cpu", "--size", "8x8")
SMALL = (*WHERE, "--loss", "mse")
RULE = "excluded 2 rows by the config's rule {device: cpu, implementation: compile}"


def test_implementation_named_on_the_command_line_is_not_excluded(capsys):
    assert main.run(["bench", *SMALL, "--impl", "compile", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "compile" in out
    assert "excluded" not in out


def test_rule_gives_way_only_if_all_its_conditions_are_named():
    rule = "reduction: none, implementation: custom:atomic"

    def rules(**named):
        return [str(one) for one in load_config("smoke", named).exclude if "atomic" in str(one)]

    assert rules(implementations=("custom:atomic",)) == [f"{{{rule}}}"]
    assert rules(implementations=("custom:atomic",), reductions=("none",)) == []
    assert rules(implementations=("custom:tree",), reductions=("none",)) == [f"{{{rule}}}"]


def test_naming_the_device_lifts_no_rule_about_a_device():
    config = load_config("thorough", {"device": "cpu"})
    assert any(block.exclude for block in config.blocks)


def test_a_rule_is_written_as_in_a_config_with_its_rows(capsys):
    rule = Exclude(size=(1024, 8), pass_="forward", reason="why")
    assert str(rule) == "{size: 1024x8, pass: forward}"
    config = load_config(None, {"sizes": ((8,), (16,))})
    (counted,) = excluded(config, "cpu")
    assert counted.rows == len(config.losses) * 2 * 2
    assert main.run(["bench", *SMALL, "--dry-run"]) == 0
    assert f"{RULE}: compiling takes minutes\n" in capsys.readouterr().out


def test_report_counts_excluded_rows_with_the_reason(tmp_path, capsys):
    timing = ("--min-time", "1ms", "--max-time", "10ms", "--impl", "reference", "-c")
    path = tmp_path / "config.yaml"
    path.write_text("{sizes: [8, 16], exclude: [{size: 16, reason: too large}]}")
    arguments = ["bench", "--device", "cpu", "--loss", "mse", *timing, str(path)]
    assert main.run([*arguments, "--format", "json", "-o", str(tmp_path / "out.json")]) == 0
    made = read_run(tmp_path / "out.json", "bench")
    assert made.excluded == (Exclusion("{size: 16}", 2, "too large"),)
    said = "excluded 2 rows by the config's rule {size: 16}: too large"
    assert said in capsys.readouterr().err
    assert said in render(made, "table")
    assert json.loads(render(made, "jsonl").splitlines()[0])["excluded"] == [
        {"rule": "{size: 16}", "rows": 2, "reason": "too large"}
    ]


@pytest.mark.parametrize("command", ["bench", "verify"])
def test_run_with_no_rows_left_names_the_rule(capsys, config, command):
    path = config("{losses: mse, sizes: 8x8, exclude: [{loss: mse, reason: a test}]}")
    for then in ([], ["--dry-run"], ["--list"]):
        assert main.run([command, "-c", path, "--device", "cpu", "--impl", "custom", *then]) == 2
        assert capsys.readouterr().err == (
            "losscli: error: nothing is left to run: excluded 2 rows by the config's rule {loss: "
            "mse}: a test. Remove the rule, or name what it excludes on the command line.\n"
        )


def test_dry_run_without_a_runnable_row_exits_as_the_run(capsys):
    for arguments, reason in (
        (("--mode", "graph", "--loss", "mse"), "a CUDA graph needs a GPU"),
        (("--impl", "functional", "--loss", "smooth_l1"), "the reference of smooth_l1 is already"),
    ):
        for then in ([], ["--dry-run"]):
            assert main.run(["bench", *WHERE, *arguments, *then]) == 4
            assert f"error: nothing could run: {reason}" in capsys.readouterr().err


def test_exclude_rule_of_only_a_reason_is_refused(capsys, config):
    path = config("{losses: mse, sizes: 8x8, exclude: [{reason: a test}]}")
    assert main.run(["bench", "-c", path, "--device", "cpu", "--list"]) == 2
    assert "an empty rule would leave every case out" in capsys.readouterr().err
