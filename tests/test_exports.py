"""`losscli export`: each format is read back as its own tool reads it."""

import json

import fastjsonschema
import pytest
from msgspec.structs import replace
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from losscli.cli import main
from losscli.render.exports import EXPORTS, STATISTICS
from tests.fabricated import elsewhere, machine
from tests.handmade import PAIR, case, failed, result, run

BENCHER = {
    "$schema": "http://json-schema.org/draft-07/schema",
    "type": "object",
    "patternProperties": {
        ".+": {
            "type": "object",
            "patternProperties": {
                ".+": {
                    "type": "object",
                    "properties": {
                        "value": {"type": "number"},
                        "lower_value": {"type": "number"},
                        "upper_value": {"type": "number"},
                    },
                    "required": ["value"],
                }
            },
        }
    },
}
"""The JSON Schema of https://bencher.dev/bmf.json."""
GITHUB = {
    "type": "array",
    "items": {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "name": {"type": "string"},
            "unit": {"type": "string"},
            "value": {"type": "number"},
            "range": {"type": "string"},
            "extra": {"type": "string"},
        },
        "required": ["name", "unit", "value"],
    },
}
"""What github-action-benchmark documents of the entries of customSmallerIsBetter."""
CUSTOM = "mse 4096x4096 float32 mean, custom, forward"


def export(made, format):
    return EXPORTS[format](made)


def test_bencher_has_latency_in_nanoseconds_with_its_interval_and_the_other_figures():
    made = machine(1)
    found = json.loads(export(made, "bencher"))
    fastjsonschema.compile(BENCHER)(found)
    assert len(found) == len(made.results)
    first, (measures, *_) = made.results[0], found.values()
    assert measures["latency"] == {
        "value": 1e9 * first.seconds.median,
        "lower_value": 1e9 * first.seconds.interval[0],
        "upper_value": 1e9 * first.seconds.interval[1],
    }
    assert measures["memory-bytes"] == {"value": 2**21}
    assert measures["error-ulp"] == {"value": 0.5}
    assert max(map(len, found)) <= 1024
    assert max(len(name) for each in found.values() for name in each) <= 64


def test_github_action_benchmark_has_an_entry_for_each_figure():
    found = json.loads(export(run(*PAIR), "github"))
    fastjsonschema.compile(GITHUB)(found)
    units = {each["name"]: (each["value"], each["unit"]) for each in found}
    assert units[CUSTOM] == (2e-3, "s")
    assert units[f"{CUSTOM}: memory"] == (2**21, "bytes")
    assert units[f"{CUSTOM}: error"] == (0.5, "ulp")
    assert len(units) == len(found) == 6


def test_openmetrics_is_read_by_prometheus():
    odd = result('kernels/"odd"\\name.py', table="one\ntwo")
    made = elsewhere(run(*PAIR, odd), commit="abc")
    read = text_string_to_metric_families(export(made, "openmetrics"))
    families = {each.name: each for each in read}
    assert list(families) == [
        *("losscli_run", "losscli_call_seconds", "losscli_memory_bytes", "losscli_error_ulp")
    ]
    (about,) = families["losscli_run"].samples
    assert (about.labels["commit"], about.labels["torch"]) == ("abc", "2.13.0")
    times = families["losscli_call_seconds"]
    assert (times.type, times.unit) == ("gauge", "seconds")
    of_custom = [s for s in times.samples if s.labels["name"] == CUSTOM]
    assert {s.labels["statistic"]: s.value for s in of_custom} == {
        name: getattr(PAIR[1].seconds, name) for name in STATISTICS
    }
    last = families["losscli_memory_bytes"].samples[-1]
    assert last.value == 2**21
    assert last.labels["implementation"] == odd.implementation
    assert last.labels["table"] == odd.table


@pytest.mark.parametrize("format", EXPORTS)
def test_cases_of_one_name_stay_apart_and_failures_are_left_out(format):
    made = run(result(), result(case=case(seed=1)), failed(implementation="theirs"))
    text = export(made, format)
    assert "seed=1" in text
    assert "theirs" not in text


@pytest.mark.parametrize("format", EXPORTS)
def test_command_writes_each_format(write, capsys, format):
    write("base.json", run(*PAIR))
    assert main.run(["export", "base.json", "--format", format]) == 0
    assert capsys.readouterr().out == f"{export(run(*PAIR), format)}\n"
    assert main.run(["export", "base.json", "--format", format, "-o", "out.txt"]) == 0
    assert main.run(["export", "base.json", "--format", format, "-o", "base.json"]) == 2


WRONG = {
    "empty.json --format bencher": "nothing was timed in empty.json",
    "base.json --format bmf": "unknown format 'bmf'",
    "base.json": "Missing option '--format'",
    "nowhere.json --format github": "there is no run 'nowhere.json'",
}


def test_wrong_arguments_exit_2(write, refused):
    write("base.json", run(*PAIR))
    write("empty.json", run(failed()))
    for arguments, message in WRONG.items():
        refused(f"export {arguments}", message)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, False),
        ({"peak_extra_bytes": 2**21 + 1}, True),
        ({"seconds": None, "status": "failed"}, True),
        ({"seconds": result(median=3e-3).seconds}, True),
    ],
    ids=["nothing", "memory", "failed", "slower"],
)
def test_summary_of_a_comparison_is_silent_when_nothing_changed(
    write, monkeypatch, tmp_path, change, told
):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    write("base.json", run(*PAIR))
    write("new.json", run(PAIR[0], replace(PAIR[1], **change)))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    main.run(["compare", "base.json", "new.json"])
    assert (tmp_path / "summary.md").exists() is told
