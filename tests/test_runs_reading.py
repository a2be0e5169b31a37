"""Runs are read back as they were written."""

import json
import math
from collections.abc import Mapping
from typing import get_args

import pytest
from msgspec.structs import replace

from losscli.cases.case import Case
from losscli.errors import UsageError
from losscli.files.record import Record
from losscli.reasons import Code
from losscli.report.render import render
from losscli.runs.encoding import RecordError, read_array
from losscli.runs.reading import read_run
from losscli.runs.records import (
    RESULTS,
    Error,
    Kind,
    Run,
    SelfTestResult,
    TimerTestResult,
    VerifyResult,
)
from tests.handmade import PAIR, failed, result, run, skipped

CASE = PAIR[0].case
NAN, INF = math.nan, math.inf


@pytest.fixture
def written(tmp_path):
    def write(text):
        path = tmp_path / "run"
        path.write_text(text)
        return path

    return write


def test_every_kind_of_run_has_a_kind_of_result():
    assert tuple(RESULTS) == get_args(Kind)


@pytest.mark.parametrize("format", ["json", "jsonl"])
def test_a_run_is_read_as_it_was_written(written, format):
    made = run(
        *PAIR, failed(table="peers"), skipped(table="others"), result(pass_="forward_backward")
    )
    assert read_run(written(render(made, format)), "bench") == made


@pytest.mark.parametrize(
    ("kind", "result"),
    {
        "bench": result("custom", error=Error()),
        "verify": VerifyResult(CASE, "custom", "value", "fail", "9 ulp", Code.WRONG, Error(1e-3)),
        "self-test": SelfTestResult(CASE, "sum for mean", honest=False, failed=True, check="value"),
        "timer-test": TimerTestResult("same", "kernel", "fail", right=90, runs=100),
    }.items(),
)
@pytest.mark.parametrize("format", ["json", "jsonl"])
def test_a_run_of_any_kind_is_read_as_it_was_written(written, kind, result, format):
    assert type(result) is RESULTS[kind]
    made = Run(
        kind=kind,
        command=("losscli",),
        created="2026",
        environment={"cpu": None},
        results=(result,),
        plan="0123",
    )
    assert read_run(written(render(made, format)), kind) == made


def test_cases_of_an_older_record_get_the_defaults_of_their_time(written):
    record = json.loads(render(run(*PAIR), "json"))
    del record["results"][0]["case"]["scale"], record["results"][1]["table"], record["plan"]
    assert read_run(written(json.dumps(record)), "bench") == run(*PAIR)


def test_unknown_fields_of_a_later_version_are_ignored(written):
    record = json.loads(render(run(*PAIR), "json"))
    record["new"] = record["results"][0]["new"] = 1
    assert read_run(written(json.dumps(record)), "bench") == run(*PAIR)


def test_run_without_results_is_read(written):
    for format in ("json", "jsonl"):
        assert read_run(written(render(run(), format) + "\n"), "bench") == run()


@pytest.mark.parametrize("end", ["\n", "\n\n", '\n{"case": {"lo\n', "\r\n"])
def test_text_below_the_last_whole_line_is_ignored(written, end):
    assert read_run(written(render(run(*PAIR), "jsonl") + end), "bench").results == PAIR


@pytest.mark.parametrize("cut", [1, 10, 200])
def test_half_a_line_at_the_end_is_ignored(written, cut):
    text = render(run(*PAIR), "jsonl")
    assert read_run(written(text[:-cut]), "bench") == replace(run(PAIR[0]), cut_off=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda r: r.pop("status"),
            "result 2 is not valid: object missing required field `status`",
        ),
        (lambda r: r.update(status=1), "'status': expected `str`, got `int`"),
        (lambda r: r.update(gbps="x"), "'gbps': expected `float | null`, got `str`"),
        (lambda r: r.update(gbps=True), "'gbps': expected `float | null`, got `bool`"),
        (
            lambda r: r["seconds"].update(samples=["x"]),
            "'seconds.samples[0]': expected `float`, got `str`",
        ),
        (lambda r: r["case"].update(shape=8), "'case.shape': expected `array`, got `int`"),
        (lambda r: r["case"].update(shape=["8"]), "'case.shape[0]': expected `int`, got `str`"),
        (lambda r: r["case"].update(loss="huber"), "this losscli has no loss 'huber' with these"),
        (lambda r: r["case"].update(params={"a": 1.0}), "no loss 'mse' with these parameters"),
        (
            lambda r: r["case"].update(dtype="int8"),
            "'dtype': unknown dtype 'int8'. Choose from: fl",
        ),
        (lambda r: r["case"].update(reduction="all"), "'reduction': unknown reduction 'all'."),
        (lambda r: r["case"].update(seed=10**400), "'seed': a number of more than 64 bits"),
        (lambda r: r["case"].update(target_shape=[10**400]), "'target_shape': (1000"),
        (lambda r: r["case"].update(shape=[-5, 0]), "'shape': (-5, 0) is not a shape"),
        (lambda r: r.update({"pass": "back"}), "'pass': unknown pass 'back'."),
        (lambda r: r.update(mode="Host"), "'mode': unknown mode 'Host'. Did you mean 'host'?"),
        (lambda r: r.update(cache="hot"), "'cache': unknown cache 'hot'."),
        (lambda r: r.update(status="fail"), "'status': unknown status 'fail'."),
        (lambda r: r.update(gbps=10**400), "'gbps': number out of range"),
        (
            lambda r: r["seconds"].update(median=NAN),
            "damaged: JSON is malformed",
        ),
        (lambda r: r["seconds"].update(p20=-INF), "damaged: JSON is malformed"),
        (lambda r: r["seconds"].update(median=0), "'seconds': 'median': 0 s is not a valid time"),
        (
            lambda r: r["seconds"].update(median=1e308),
            "'seconds': 'median': 1e+308 s is not a valid time",
        ),
        (lambda r: r["seconds"].update(samples=[1, NAN]), "damaged: JSON is malformed"),
        (
            lambda r: r["seconds"].update(samples=[10**400]),
            "'seconds.samples[0]': number out of range",
        ),
        (
            lambda r: r["seconds"].update(samples=[1, 0]),
            "'seconds': 'samples': 0 s is not a valid time",
        ),
        (lambda r: r["seconds"].update(samples=[1, -2]), "'samples': -2 s is not a valid time"),
        (lambda r: r.update(case=None), "'case': expected `object`, got `null`"),
    ],
)
def test_invalid_result_names_its_field(written, change, message):
    record = json.loads(render(run(*PAIR), "json"))
    change(record["results"][1])
    with pytest.raises(UsageError) as error:
        read_run(written(json.dumps(record)), "bench")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 200_000, "is not a result of losscli"),
        ('{"schema_version": 1, "kind": "bench", "results": ' + "[" * 200_000, "nested too deeply"),
        (
            '{"schema_version": 1, "kind": "bench"}\n' + "[" * 200_000 + "\n{}\n",
            "result 1 is not valid",
        ),
        ('{"schema_version": 1, "kind": "bench"}\n{\n{}\n', ":2: this line is not JSON"),
        ('{"schema_version": 1, "kind": "bench", "results": [' + "9" * 5000 + "]}", "out of range"),
    ],
)
def test_malformed_json_is_a_damaged_file(written, text, message):
    with pytest.raises(UsageError, match=message):
        read_run(written(text), "bench")


class Inner(Record, frozen=True):
    numbers: tuple[float, ...] = ()


class Outer(Record, frozen=True):
    pass_: str
    inner: Inner | None = None
    named: Mapping[str, int] = {}


def read(value):
    (record,) = read_array(Outer, json.dumps([value]).encode())
    return record


def test_defaults_are_not_shared_and_pass_reads_into_pass_():
    one, other = (read({"pass": "forward"}) for _ in range(2))
    assert one == other == Outer("forward")
    assert one.named is not other.named
    assert read({"pass": "f", "inner": {"numbers": [1, 2.5]}}).inner == Inner((1, 2.5))
    with pytest.raises(RecordError, match="missing required field `pass`"):
        read({"pass_": "forward"})


def test_equal_cases_of_a_record_are_shared(written):
    first, second = read_run(written(render(run(*PAIR), "json")), "bench").results
    assert first.case is second.case
    assert isinstance(first.case, Case)
