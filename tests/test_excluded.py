"""Excluded rows are reported; a name on the command line wins over a rule."""

import json

import pytest

from losscli.cli import main
from losscli.config.expansion import excluded
from losscli.config.loader import load_config
from losscli.config.schema import Exclude
from losscli.render.records import render
from losscli.runs.reading import read_run
from losscli.runs.records import Exclusion

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
        (("--impl", "functional", "--loss", "smooth_l1"), "the reference of smooth_l1 is what one"),
    ):
        for then in ([], ["--dry-run"]):
            assert main.run(["bench", *WHERE, *arguments, *then]) == 4
            assert f"error: nothing could run: {reason}" in capsys.readouterr().err


def test_exclude_rule_of_only_a_reason_is_refused(capsys, config):
    path = config("{losses: mse, sizes: 8x8, exclude: [{reason: a test}]}")
    assert main.run(["bench", "-c", path, "--device", "cpu", "--list"]) == 2
    assert "an empty rule would leave every case out" in capsys.readouterr().err
