"""YAML values with positions, read as YAML 1.2.

PyYAML reads YAML 1.1, in which ``1e-3`` is a string, ``on`` is true, ``12:30`` is 750 and ``010``
is eight. So only its parser is used, and scalars follow the core schema of YAML 1.2.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn, TypeVar, Union

import yaml

from losscli.errors import ConfigError, ConfigErrors
from losscli.files.reading import CONFIG_BYTES, read_bytes

T = TypeVar("T")
S = TypeVar("S")
Scalar = str | int | float | bool | None
Value = Union[Scalar, "list[Located]", "dict[str, Located]"]

_KINDS = {bool: "a boolean", int: "a whole number", float: "a number", type(None): "nothing"}


@dataclass(frozen=True)
class Located:
    """A YAML value with its position."""

    value: Value
    file: str
    line: int
    column: int
    text: str = ""
    """A scalar as written: ``0x10`` may be a size as well as sixteen."""
    key: "Located | None" = None

    def fail(self, message: str) -> NoReturn:
        """Raise a ConfigError that points here."""
        raise ConfigError(message, file=self.file, line=self.line, column=self.column)

    def describe(self) -> str:
        """Describe the value, for ``expected ..., found``."""
        if isinstance(self.value, dict):
            return "a mapping"
        if isinstance(self.value, list):
            return "a list" if self.value else "an empty list"
        if isinstance(self.value, str):
            return f"'{_shortened(self.value)}'"
        return f"{_KINDS[type(self.value)]}{f' ({_shortened(self.text)})' if self.text else ''}"


class Problems:
    """Collects a config's errors to report them together."""

    def __init__(self) -> None:
        self._errors: dict[str, ConfigError] = {}

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Collect errors raised inside, without duplicates."""
        try:
            yield
        except ConfigError as found:
            self._errors |= {str(error): error for error in found.errors}

    def raise_any(self) -> None:
        """Raise the collected errors: one as it is, several together."""
        errors = tuple(self._errors.values())
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise ConfigErrors(errors)


def each(items: Iterable[S], read: Callable[[S], T]) -> list[T]:
    """Read every item; raise all errors together."""
    problems, found = Problems(), []
    for item in items:
        with problems.caught():
            found.append(read(item))
    problems.raise_any()
    return found


def read(path: Path) -> Located:
    """Read a YAML file; an empty one is an empty mapping."""
    file = str(path)
    try:
        text = read_bytes(path, CONFIG_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"not UTF-8 text: {error.reason} at byte {error.start}."
        raise ConfigError(message, file=file) from None
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}.", file=file) from None
    return parse(text, file)


def parse(text: str, file: str) -> Located:
    """Parse YAML text; ``file`` is its name in errors."""
    try:
        root: Located | None = _Loader(text, file).get_single_data()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (None, None)
        problem = ", ".join(part for part in (_context(error), error.problem) if part)
        problem = problem.replace("'<stream end>'", "the end of the file") + "."
        problem += " Indent with spaces, not tabs." if "'\\t'" in problem else ""
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        problem = f"character #x{ord(text[error.position]):04x} is not allowed."
    except RecursionError:
        problem, line, column = "it is nested too deeply.", None, None
    else:
        return root or Located({}, file, 1, 1)
    raise ConfigError(f"cannot parse YAML: {problem}", file=file, line=line, column=column)


def excerpt(file: Path, line: int | None, column: int | None) -> list[str]:
    """Return a file's line and a caret under the column, or nothing."""
    if line is None or column is None:
        return []
    lines: list[str] = []
    with suppress(OSError):
        lines = read_bytes(file, CONFIG_BYTES).decode("utf-8-sig", "replace").splitlines()
    if line > len(lines):  # the end of the file
        return []
    most = 90  # characters of the line
    begin = max(0, column - 1 - most // 2)
    text = lines[line - 1][begin : begin + most]
    shown = "".join(c if c.isprintable() else " " for c in text)
    number = f"{line:>5} | "
    return [f"{number}{shown}", f"{' ' * (len(number) + column - 1 - begin)}^"]


def _context(error: yaml.MarkedYAMLError) -> str:
    """Describe what was being parsed, and where it began if on another line."""
    context, begin, end = error.context or "", error.context_mark, error.problem_mark
    if not context.startswith("while") or not begin or not end or begin.line == end.line:
        return context
    return f"{context} that began in line {begin.line + 1}, column {begin.column + 1}"


_CORE_SCHEMA: tuple[tuple[str, Callable[[str], Scalar]], ...] = (
    (r"~|null|Null|NULL|", lambda text: None),
    (r"true|True|TRUE|false|False|FALSE", lambda text: text.lower() == "true"),
    (r"[-+]?[0-9]+", lambda text: int(text)),
    (r"0o[0-7]+", lambda text: int(text[2:], 8)),
    (r"0x[0-9a-fA-F]+", lambda text: int(text[2:], 16)),
    (r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", float),
    (r"[-+]?\.(inf|Inf|INF)", lambda text: float(text.replace(".", "", 1))),
    (r"\.(nan|NaN|NAN)", lambda text: math.nan),
)
_LONGEST_NUMBER = 400
"""Longer numbers are read as text: Python refuses to convert more than 4300 digits."""


def _scalar(node: yaml.ScalarNode) -> Scalar:
    if node.style is None and len(node.value) < _LONGEST_NUMBER:
        for pattern, convert in _CORE_SCHEMA:
            if re.fullmatch(pattern, node.value):
                return convert(node.value)
    return str(node.value)


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader without YAML 1.1: it resolves no scalars and constructs Located."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012

    def __init__(self, text: str, file: str) -> None:
        super().__init__(text)
        self.file, self.problems = file, Problems()
        self.values: dict[yaml.Node, Value] = {}

    def construct_document(self, node: yaml.Node) -> Located:
        root = self.located(node)
        self.problems.raise_any()
        return root

    def located(self, node: yaml.Node, key: Located | None = None) -> Located:
        """Convert a node recursively; an alias shares its anchor's value."""
        line, column = node.start_mark.line + 1, node.start_mark.column + 1
        text = node.value if isinstance(node, yaml.ScalarNode) else ""
        here = Located(None, self.file, line, column, text, key)
        if node in self.recursive_objects:
            here.fail("an alias that contains itself. Remove it.")
        if node not in self.values:
            self.recursive_objects[node] = None
            self.values[node] = self.value(node, here)
            del self.recursive_objects[node]
        return replace(here, value=self.values[node])

    def value(self, node: yaml.Node, here: Located) -> Value:
        if node.tag not in ("tag:yaml.org,2002:" + kind for kind in ("str", "seq", "map")):
            here.fail(f"the tag '{node.tag}' is not supported. Remove it.")
        if isinstance(node, yaml.ScalarNode):
            return _scalar(node)
        if isinstance(node, yaml.SequenceNode):
            return [self.located(item) for item in node.value]
        entries: dict[str, Located] = {}
        for key_node, value_node in node.value:
            key = self.located(key_node)
            with self.problems.caught():
                if isinstance(key.value, dict | list):
                    key.fail(f"expected a name as key, found {key.describe()}.")
                if (first := entries.get(key.text)) is not None and first.key is not None:
                    key.fail(f"duplicate key '{key.text}', first given in line {first.key.line}.")
            entries[key.text] = self.located(value_node, key)
        return entries


def _shortened(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 40 else f"{flat[:37]}..."
