"""No file makes a traceback or a hang: what cannot be read ends in an error of losscli's own."""

import copy
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from losscli.cli import main
from losscli.config.loader import load_config, shipped_configs
from losscli.errors import EXIT_FAILED, EXIT_OK, EXIT_UNFIT, EXIT_USAGE, LosscliError
from losscli.judge.batch import read_finished
from losscli.runs.reading import read_run

# The same examples in every run, and no time that a busy machine exceeds.
BOUNDED = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
FORMS = ("bench", "verify")
RESULTS = Path(__file__).parents[1] / "docs" / "results"

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["1e999", "-0x1", "1024x1024", "pow2[0:99:1]", "10**400", "all", "nan", "~"])
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=8,
)


def ends_well(read: Callable[[], object]) -> None:
    """Call a reader, which may refuse with an error of losscli's own, of one short message."""
    message = "none"
    try:
        read()
    except LosscliError as error:
        message = str(error)
    assert 0 < len(message.replace(tempfile.gettempdir(), "")) < 3000


def small_record(kind: str) -> dict[str, Any]:
    name = "h200-rows-bench.json" if kind == "bench" else "h200-cross-entropy-verify.json"
    record: dict[str, Any] = json.loads((RESULTS / name).read_text())
    record["results"] = record["results"][:2]
    for result in record["results"]:
        if result.get("seconds"):
            result["seconds"] |= {"samples": result["seconds"]["samples"][:2], "processes": [2]}
    return record


RECORDS = {kind: small_record(kind) for kind in FORMS}


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path]
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in items:
            found += places(inner, (*path, key))
    return found


PLACES = {kind: places(record) for kind, record in RECORDS.items()}


def changed(record: Any, path: tuple[Any, ...], value: Any, *, remove: bool) -> Any:
    """Return a record with one value replaced or left out."""
    if not path:
        return value
    record = copy.deepcopy(record)
    holder = record
    for key in path[:-1]:
        holder = holder[key]
    if remove:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return record


def test_untouched_records_are_read(tmp_path):
    kinds: tuple[Literal["bench", "verify"], ...] = ("bench", "verify")
    for kind in kinds:
        (tmp_path / "record").write_text(json.dumps(RECORDS[kind]))
        assert len(read_run(tmp_path / "record", kind).results) == 2


@BOUNDED
@given(data=st.data())
def test_records_with_changed_values(data, tmp_path):
    kind = data.draw(st.sampled_from(FORMS))
    record = RECORDS[kind]
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(PLACES[kind]))
        try:
            record = changed(record, path, data.draw(values), remove=data.draw(st.booleans()))
        except (KeyError, IndexError, TypeError):  # what an earlier change took away
            continue
    file = tmp_path / "record"
    file.write_text(json.dumps(record))
    ends_well(lambda: read_run(file, kind))


@BOUNDED
@given(data=st.data())
def test_comparisons_with_changed_records(data, tmp_path):
    """What can be read can be compared, or is refused."""
    base, new = tmp_path / "base.json", tmp_path / "new.json"
    base.write_text(json.dumps(RECORDS["bench"]))
    path = data.draw(st.sampled_from(PLACES["bench"]))
    value = data.draw(values | st.sampled_from([0, -1, 1e-300, 1e300, 2**62, ""]))
    new.write_text(json.dumps(changed(RECORDS["bench"], path, value, remove=False)))
    form = data.draw(st.sampled_from(["table", "md", "csv", "json"]))
    for pair in ((base, new), (new, base)):
        code = main.run(["compare", *map(str, pair), "--format", form, "-o", str(tmp_path / "out")])
        assert code in (EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_UNFIT)


@BOUNDED
@given(cut=st.integers(0, 10**6), more=st.binary(max_size=40), lines=st.booleans())
def test_records_that_are_cut_off_or_overwritten(cut, more, lines, tmp_path):
    record = RECORDS["bench"]
    header = {key: value for key, value in record.items() if key != "results"}
    whole = [json.dumps(each) for each in (header, *record["results"])]
    data = ("\n".join(whole) if lines else json.dumps(record)).encode()
    file = tmp_path / "record"
    at = cut % len(data)
    file.write_bytes(data[:at] + more + data[at + len(more) + 1 :])
    ends_well(lambda: read_run(file, "bench"))
    file.write_bytes(data[:at] + more)
    ends_well(lambda: read_run(file, "bench"))


@BOUNDED
@given(data=st.binary(max_size=200) | values.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_as_record_config_and_output(data, tmp_path):
    file = tmp_path / "file.yaml"
    file.write_bytes(data)
    ends_well(lambda: read_run(file, "bench"))
    ends_well(lambda: load_config(str(file), {}))
    ends_well(lambda: read_finished(file))


@BOUNDED
@given(keys=st.dictionaries(st.sampled_from([
    "device", "losses", "sizes", "dtypes", "reductions", "passes", "implementations", "inputs",
    "exclude", "timing", "tables", "extends", "grad_outputs", "layouts", "tolerances", "titel",
]), values, max_size=4))  # fmt: skip
def test_configs_with_any_values(keys, tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps(keys))  # which YAML contains
    ends_well(lambda: load_config(str(file), {}))


@BOUNDED
@given(data=st.data())
def test_shipped_configs_with_changed_characters(data, tmp_path):
    source = data.draw(st.sampled_from(sorted(shipped_configs().values())))
    text = source.read_text()
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        put = data.draw(st.text("\t\n :-[]{}&*!|>'\"%@`#,0e.x\0é", max_size=3))
        text = text[:at] + put + text[at + data.draw(st.integers(0, 3)) :]
    file = tmp_path / "config.yaml"
    file.write_text(text, encoding="utf-8")
    ends_well(lambda: load_config(str(file), {}))
