import itertools
import json
import math
from collections.abc import Mapping
from typing import Any, ClassVar, get_args

import pytest
from msgspec.structs import replace

from losscli.cases.case import Case
from losscli.config.loader import load_config
from losscli.errors import UsageError
from losscli.files.record import Record
from losscli.reasons import Code
from losscli.render.records import render
from losscli.runs.encoding import RecordError, read_json
from losscli.runs.measurements import Error
from losscli.runs.reading import read_run
from losscli.runs.records import (
    RESULTS,
    Headline,
    Kind,
    Run,
    SelfTestResult,
    SlowerConfiguration,
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


KINDS = {
    "bench": (
        *PAIR,
        failed(table="peers"),
        skipped(table="others"),
        result(pass_="forward_backward", error=Error()),
    ),
    "verify": (VerifyResult(CASE, "custom", "value", "fail", "9 ulp", Code.WRONG, Error(1e-3)),),
    "self-test": (
        SelfTestResult(CASE, "sum for mean", legitimate=False, failed=True, check="value"),
    ),
    "timer-test": (TimerTestResult("same", "kernel", "fail", right=90, runs=100),),
}


def test_a_run_of_any_kind_is_read_as_it_was_written(written):
    for (kind, results), format in itertools.product(KINDS.items(), ("json", "jsonl")):
        assert {type(each) for each in results} == {RESULTS[kind]}
        facts: dict[str, Any]
        facts = {"command": ("losscli",), "created": "2026", "environment": {"cpu": None}}
        made = Run(kind=kind, results=results, plan="0123", **facts)
        assert read_run(written(render(made, format)), kind) == made
        empty = replace(made, results=())
        assert read_run(written(render(empty, format) + "\n"), kind) == empty


def test_cases_of_an_older_record_get_the_defaults_of_their_time(written):
    record = json.loads(render(run(*PAIR), "json"))
    del record["results"][0]["case"]["scale"], record["results"][1]["table"], record["plan"]
    assert read_run(written(json.dumps(record)), "bench") == run(*PAIR)


def test_codes_of_earlier_versions_are_read(written):
    record = json.loads(render(run(failed(code=Code.INSUFFICIENT_MEMORY)), "json"))
    record["results"][0]["code"] = "no_room"
    (read,) = read_run(written(json.dumps(record)), "bench").results
    assert read.code == Code.INSUFFICIENT_MEMORY
    record["results"][0]["code"] = "no_rooms"
    with pytest.raises(UsageError, match="'code': invalid enum value 'no_rooms'"):
        read_run(written(json.dumps(record)), "bench")


def test_keys_of_earlier_versions_are_read(written):
    (test,) = KINDS["self-test"]
    record = json.loads(render(Run(kind="self-test", results=(test,)), "json"))
    (former,) = record["results"]
    former["honest"] = former.pop("legitimate")
    for text in (json.dumps(record), "\n".join(map(json.dumps, in_lines(record)))):
        assert read_run(written(text), "self-test").results == (test,)
    former["honest"] = "yes"
    with pytest.raises(UsageError, match="result 1 is not valid: 'legitimate': expected `bool`"):
        read_run(written(json.dumps(record)), "self-test")

    slower = SlowerConfiguration("mse", "forward", "device", "", "compile", 0.5)
    made = replace(run(*PAIR), headline=Headline(2, (slower,)))
    record = json.loads(render(made, "json"))
    summary = record["headline"]
    summary["cells"] = summary.pop("configurations")
    summary["slower"][0]["peer"] = summary["slower"][0].pop("baseline")
    assert read_run(written(json.dumps(record)), "bench") == made


def test_tables_of_shipped_configs_are_read_by_their_former_titles(written):
    former, present = "losscli and its peers", "losscli and the baselines"
    record = json.loads(render(run(result(table=former)), "json"))
    assert read_run(written(json.dumps(record)), "bench") == run(result(table=present))
    path = written(f"{{losses: mse, tables: [{{title: {former}, sizes: 8}}]}}")
    assert [block.title for block in load_config(str(path), {}).blocks] == [present]


def in_lines(record):
    return [{key: record[key] for key in record if key != "results"}, *record["results"]]


def test_unknown_fields_of_a_later_version_are_ignored(written):
    record = json.loads(render(run(*PAIR), "json"))
    record["new"] = record["results"][0]["new"] = 1
    assert read_run(written(json.dumps(record)), "bench") == run(*PAIR)


def test_text_below_the_last_whole_line_is_ignored(written):
    text = render(run(*PAIR), "jsonl")
    for end in ("\n", "\n\n", '\n{"case": {"lo\n', "\r\n"):
        assert read_run(written(text + end), "bench").results == PAIR
    for cut in (1, 10, 200):
        assert read_run(written(text[:-cut]), "bench") == replace(run(PAIR[0]), cut_off=True)


def within(place, **changes):
    return lambda record: record[place].update(changes)


def updated(**changes):
    return lambda record: record.update(changes)


INVALID = (
    (lambda r: r.pop("status"), "result 2 is not valid: object missing required field `status`"),
    (updated(status=1), "'status': expected `str`, got `int`"),
    (updated(gbps="x"), "'gbps': expected `float | null`, got `str`"),
    (updated(gbps=True), "'gbps': expected `float | null`, got `bool`"),
    (within("seconds", samples=["x"]), "'seconds.samples[0]': expected `float`, got `str`"),
    (within("case", shape=8), "'case.shape': expected `array`, got `int`"),
    (within("case", shape=["8"]), "'case.shape[0]': expected `int`, got `str`"),
    (within("case", loss="huber"), "this losscli has no loss 'huber' with these"),
    (within("case", params={"a": 1.0}), "no loss 'mse' with these parameters"),
    (within("case", dtype="int8"), "'dtype': unknown dtype 'int8'. Choose from: fl"),
    (within("case", reduction="all"), "'reduction': unknown reduction 'all'."),
    (within("case", seed=10**400), "'seed': a number of more than 64 bits"),
    (within("case", target_shape=[10**400]), "'target_shape': (1000"),
    (within("case", layout="diagonal"), "'layout': unknown layout 'diagonal'"),
    (within("case", grad_output="often"), "often is neither"),
    (within("case", shape=[-5, 0]), "'shape': (-5, 0) is not a shape"),
    (updated(**{"pass": "back"}), "'pass': unknown pass 'back'."),
    (updated(mode="Host"), "'mode': unknown mode 'Host'. Did you mean 'host'?"),
    (updated(cache="hot"), "'cache': unknown cache 'hot'."),
    (updated(status="fail"), "'status': unknown status 'fail'."),
    (updated(gbps=10**400), "'gbps': number out of range"),
    (within("seconds", median=NAN), "damaged: JSON is malformed"),
    (within("seconds", p20=-INF), "damaged: JSON is malformed"),
    (within("seconds", samples=[1, NAN]), "damaged: JSON is malformed"),
    (within("seconds", median=0), "'seconds.median': expected `float` > 0.0"),
    (within("seconds", median=1e308), "'seconds.median': expected `float` < 1000000000.0"),
    (within("seconds", samples=[10**400]), "'seconds.samples[0]': number out of range"),
    (within("seconds", samples=[1, 0]), "'seconds.samples[1]': expected `float` > 0.0"),
    (within("seconds", samples=[1, -2]), "'seconds.samples[1]': expected `float` > 0.0"),
    (updated(case=None), "'case': expected `object`, got `null`"),
)
HEAD = '{"schema_version": 1, "kind": "bench"'
MALFORMED = {
    "[" * 200_000: "is not a result of losscli",
    HEAD + ', "results": ' + "[" * 200_000: "nested too deeply",
    HEAD + "}\n" + "[" * 200_000 + "\n{}\n": "result 1 is not valid",
    HEAD + "}\n{\n{}\n": ":2: this line is not JSON",
    HEAD + ', "results": [' + "9" * 5000 + "]}": "out of range",
}


def test_invalid_result_names_its_field(written):
    texts = dict(MALFORMED)
    for change, message in INVALID:
        record = json.loads(render(run(*PAIR), "json"))
        change(record["results"][1])
        texts[json.dumps(record)] = message
    for text, message in texts.items():
        with pytest.raises(UsageError) as error:
            read_run(written(text), "bench")
        assert message in str(error.value)


class Inner(Record, frozen=True):
    numbers: tuple[float, ...] = ()


class Outer(Record, frozen=True):
    pass_: str
    inner: Inner | None = None
    named: Mapping[str, int] = {}


def read(value):
    (record,) = read_json(list[Outer], json.dumps([value]).encode())
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


class Half(Record, frozen=True):
    whole: float
    unit: str = "s"

    derived: ClassVar[Mapping[str, str]] = {"whole": "half"}

    @property
    def half(self):
        return self.whole / 2


class Halves(Record, frozen=True):
    by_name: Mapping[str, Half]
    in_: tuple[Half, ...] = ()


def test_record_is_written_with_derived_figures_and_under_public_names():
    assert list(Half(3.0).to_json().items()) == [("whole", 3.0), ("half", 1.5), ("unit", "s")]
    two, four = {"whole": 2, "half": 1.0, "unit": "s"}, {"whole": 4, "half": 2.0, "unit": "m"}
    halves = Halves({"two": Half(2)}, in_=(Half(2), Half(4, "m")))
    assert halves.to_json() == {"by_name": {"two": two}, "in": [two, four]}
    assert math.isnan(Half(math.nan).to_json()["whole"])  # for the encoder to replace
    with pytest.raises(AttributeError):
        Half(1.0).whole = 2.0  # type: ignore[misc]
