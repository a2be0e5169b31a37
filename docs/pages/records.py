"""The reference of the records that losscli writes, from the classes that write them."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator

from losscli.cases.case import Case
from losscli.files.record import Record
from losscli.runs import records
from losscli.runs.measurements import Collective, Error, OfRank, Seconds, Speedup
from losscli.runs.records import Exclusion, Headline, SlowerConfiguration

RECORDS: tuple[type[Record], ...] = (
    records.Run,
    records.BenchResult,
    Seconds,
    Speedup,
    OfRank,
    Collective,
    Error,
    records.VerifyResult,
    records.SelfTestResult,
    records.TimerTestResult,
    Case,
    Exclusion,
    Headline,
    SlowerConfiguration,
)
INTRODUCTION = """\
# The record of a run

`--format json` writes one object, a `Run`. `--format jsonl` writes the same on many lines: first
the fields of the run without `results`, then one result on each line. Times are in seconds, sizes
in bytes, rates in GB/s of 1e9 bytes a second. `results` of a `bench` are of `BenchResult`, those of
a `verify` of `VerifyResult`, those of the self-tests of `SelfTestResult` and `TimerTestResult`.

`schema_version` is raised when a field is renamed, removed or changes its meaning. New fields may
come at any time, so a program that reads records should ignore those that it does not know.
"""


def fields_of(record: type[Record]) -> Iterator[tuple[str, str, str]]:
    """Return the name in JSON, the type and the documentation of each field and derived value."""
    types, told = _written(record)
    for key, name in zip(record.__struct_encode_fields__, record.__struct_fields__, strict=True):
        if name == "cut_off":
            continue  # no part of the record
        yield key, types[name], told.get(name, "")
        while name in record.derived:
            name = derived = record.derived[name]
            getter = getattr(record, derived).fget
            kind = str(getter.__annotations__["return"])
            yield derived, kind, inspect.cleandoc(getter.__doc__ or "")


def _written(record: type[Record]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the types and the docstrings of a record's fields, as its source has them."""
    types: dict[str, str] = {}
    told: dict[str, str] = {}
    for each in reversed(record.__mro__):
        if not issubclass(each, Record) or each is Record:
            continue
        body = ast.parse(inspect.getsource(each)).body[0]
        assert isinstance(body, ast.ClassDef)
        last = ""
        for statement in body.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                last = statement.target.id
                text = re.sub("CallSeconds|Ratio", "float", ast.unparse(statement.annotation))
                types[last] = re.sub(r"Annotated\[(.+), Meta\(.*?\)\]", r"\1", text)
            elif last and isinstance(statement, ast.Expr):
                value = statement.value
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    told[last] = inspect.cleandoc(value.value)
            else:
                last = ""
    return types, told


def page() -> str:
    """Return the page of all records."""
    parts = [INTRODUCTION]
    for record in RECORDS:
        parts.append(f"## {record.__name__}\n\n{inspect.cleandoc(record.__doc__ or '')}\n")
        parts.append("| field | type | meaning |\n| --- | --- | --- |")
        for key, kind, told in fields_of(record):
            cells = (f"`{key}`", f"`{kind}`", " ".join(told.split()) or key.replace("_", " "))
            parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        parts.append("")
    return "\n".join(parts)
