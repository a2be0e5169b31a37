"""Implementations in files of others: ``FILE``, ``FILE:NAME``, ``FILE@REVISION``.

A file is read, never imported, here: what it defines is found in its syntax tree. A worker imports
it, see ``sandbox``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from losscli.errors import UsageError
from losscli.losses import EVERY_LOSS, LOSSES, Spec
from losscli.reading import SOURCE_BYTES, read_bytes
from losscli.reasons import Reason

MODULE = "ModelNew"
REFERENCE_MODULE = "Model"
INPUT_NAMES = (
    *("input", "inputs", "inp", "x", "pred", "preds", "prediction", "predictions"),
    *("y_pred", "y_hat", "yhat", "output", "outputs", "out", "logits", "score", "scores"),
)
TARGET_NAMES = (
    *("target", "targets", "tgt", "label", "labels", "y", "y_true", "true", "t", "truth"),
    *("gt", "expected"),
)
_PATTERN = re.compile(r"^(?P<path>.+?\.py)(?:@(?P<revision>[^:@]+))?(?::(?P<name>\w+))?$")


class NotJudgeableError(UsageError):
    """A file defines nothing that can be called as a loss; ``code`` is a verdict's."""

    def __init__(
        self, code: Literal["syntax", "nothing_to_judge", "ambiguous", "signature"], text: str
    ) -> None:
        """``text`` says what was looked for, and what was found."""
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class Signature:
    """The arguments of a function, as its definition has them."""

    names: tuple[str, ...]
    """Those that may be given by position, without ``self``."""
    required: int
    """How many of them have no default."""
    keywords: frozenset[str]
    """All that may be given by name."""
    anything: bool = False
    """Whether it takes any keyword, or its definition is not in the file."""

    def takes(self, keyword: str) -> bool:
        """Tell whether an argument may be given by name."""
        return self.anything or keyword in self.keywords

    @property
    def is_loss(self) -> bool:
        """Whether the names of the first two arguments are those of an input and a target."""
        names = [name.lower() for name in self.names[:2]]
        known = {*INPUT_NAMES, *TARGET_NAMES}
        return self.anything or (len(names) == 2 and {*names} <= known)

    def order(self, given: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Return ``input`` and ``target`` in the order in which they are to be given.

        Args:
            given: the order that the user has said; empty to find it from the names.

        Raises:
            NotJudgeableError: it takes fewer than two arguments, or needs more.
        """
        if given:
            return given
        if self.anything and not self.names:
            return ("input", "target")
        if len(self.names) < 2 or self.required > 2:
            found = ", ".join(self.names) or "none"
            text = f"expected arguments for input and target, found {found}"
            raise NotJudgeableError("signature", f"{text}. Write (input, target, ...)")
        first, second = (name.lower() for name in self.names[:2])
        swapped = first in TARGET_NAMES and second not in TARGET_NAMES
        return ("target", "input") if swapped else ("input", "target")


@dataclass(frozen=True)
class Definition:
    """Something in a file that can be called as a loss."""

    name: str
    kind: Literal["function", "module"]
    signature: Signature
    """Of the function, or of the module's forward."""
    constructor: Signature | None = None
    """Of a module."""

    def takes(self, keyword: str) -> bool:
        """Tell whether an argument may be given by name, to a module or to its constructor."""
        return any(s.takes(keyword) for s in (self.signature, self.constructor) if s)


@dataclass(frozen=True)
class UserFile:
    """A file as it was named, with its source."""

    named: str
    path: Path
    revision: str
    name: str
    """Of the function or class; empty to find it."""
    source: str
    sha256: str

    def definition(self, loss: str) -> Definition:
        """Return what a loss is called as.

        Raises:
            NotJudgeableError: nothing fits, or several things do.
        """
        found = _definitions(self.source, str(self.path))
        if self.name:
            if self.name not in found:
                raise NotJudgeableError(
                    "nothing_to_judge", f"{self.named}: there is no '{self.name}'. {_told(found)}"
                )
            return found[self.name]
        known = dict.fromkeys((_function_name(loss), loss, MODULE))
        wanted = [name for name in known if name in found]
        if not wanted:
            public = [name for name in found if not name.startswith("_")]
            losses = [name for name in public if name.endswith("_loss")] or public
            named = {*LOSSES, *map(_function_name, LOSSES)}
            of_others = named & set(losses)
            reference = {REFERENCE_MODULE, "get_inputs", "get_init_inputs"}
            losses = [name for name in losses if name not in of_others | reference]
            functions = [name for name in losses if found[name].kind == "function"]
            wanted = [
                name
                for name in functions or losses
                if name.endswith("_loss") or found[name].signature.is_loss
            ]
        if not wanted:
            function = f"a function {_function_name(loss)} or " if loss else ""
            text = f"{self.named}: expected {function}a class {MODULE}"
            raise NotJudgeableError("nothing_to_judge", f"{text}. {_told(found)}")
        if len(wanted) > 1:
            named_ = ", ".join(wanted)
            text = f"{self.named}: several could be meant: {named_}"
            raise NotJudgeableError("ambiguous", f"{text}. Name one: {self.path}:{wanted[0]}")
        return found[wanted[0]]

    def unavailable(
        self, loss: str, reduction: str, spec: Spec, parameters: Mapping[str, float]
    ) -> Reason | None:
        """Return why what it defines cannot run a case; None if it can."""
        try:
            definition = self.definition(loss)
            definition.signature.order()
        except NotJudgeableError as error:
            return Reason("not_applicable", str(error).rstrip("."))
        takes = definition.takes
        for operand in spec.names[2:]:
            if not definition.signature.takes(operand):
                return Reason("not_applicable", f"{definition.name} takes no {operand}")
        if reduction != "mean" and not takes("reduction"):
            return Reason("not_applicable", f"{definition.name} takes no reduction")
        for parameter in spec.parameters:
            changed = parameters.get(parameter.name, parameter.default) != parameter.default
            if changed and not takes(parameter.name):
                return Reason("not_applicable", f"{definition.name} takes no {parameter.name}")
        return None

    def defines(self, name: str) -> bool:
        """Tell whether the file defines something of a name."""
        return name in _definitions(self.source, str(self.path))


def is_file(name: str) -> bool:
    """Tell whether the name of an implementation is that of a file."""
    return bool(_PATTERN.match(name))


def read_file(named: str) -> UserFile:
    """Read a file, at a revision if one is named.

    Raises:
        UsageError: there is no such file or revision.
        NotJudgeableError: it is no Python.
    """
    match = _PATTERN.match(named)
    if not match:
        raise UsageError(f"expected FILE.py, FILE.py:NAME or FILE.py@REVISION, given '{named}'.")
    path, revision = Path(match["path"]), match["revision"] or ""
    data = _at_revision(path, revision) if revision else _now(path)
    try:
        source = data.decode()
    except UnicodeDecodeError:
        raise NotJudgeableError("syntax", f"{named} is no Python: it is not UTF-8.") from None
    _definitions(source, str(path))
    import hashlib  # only here: commands that read no file start faster

    digest = hashlib.sha256(data).hexdigest()
    return UserFile(named, path.absolute(), revision, match["name"] or "", source, digest)


def _now(path: Path) -> bytes:
    try:
        return read_bytes(path, SOURCE_BYTES)
    except FileNotFoundError:
        raise UsageError(f"there is no file '{path}'.") from None
    except OSError as error:
        raise UsageError(f"'{path}' cannot be read: {error.strerror}.") from None


def _at_revision(path: Path, revision: str) -> bytes:
    """Return a file as git has it."""
    import subprocess

    directory = path.absolute().parent
    command = ["git", "-C", str(directory), "show", f"{revision}:./{path.name}"]
    try:
        shown = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        raise UsageError(f"'{path}@{revision}' needs git, which is not installed.") from None
    if shown.returncode:
        why = shown.stderr.decode(errors="replace").strip().partition("\n")[0]
        raise UsageError(f"git has no '{path}' at '{revision}': {why}")
    return shown.stdout


@cache
def _function_name(loss: str) -> str:
    """Return what the public function of a loss is called; of no known loss what it would be."""
    return EVERY_LOSS[loss].function_name if loss in EVERY_LOSS else f"{loss}_loss"


def _definitions(source: str, path: str) -> Mapping[str, Definition]:
    """Return what a source defines at its top level that can be called, by name."""
    try:
        tree = ast.parse(source, path)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        where = f"{path}:{line}" if line else path
        what = getattr(error, "msg", None) or str(error)
        raise NotJudgeableError("syntax", f"{where}: {what}") from None
    return {definition.name: definition for definition in _found(tree.body)}


def _found(body: list[ast.stmt]) -> Iterator[Definition]:
    unknown = Signature((), 0, frozenset(), anything=True)
    for node in body:
        if isinstance(node, ast.FunctionDef):
            yield Definition(node.name, "function", _signature(node.args))
        elif isinstance(node, ast.ClassDef):
            methods = {m.name: m for m in node.body if isinstance(m, ast.FunctionDef)}
            forward, made = methods.get("forward"), methods.get("__init__")
            if forward or any("Module" in ast.unparse(base) for base in node.bases):
                yield Definition(
                    node.name,
                    "module",
                    _signature(forward.args, bound=True) if forward else unknown,
                    _signature(made.args, bound=True) if made else Signature((), 0, frozenset()),
                )
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                named = isinstance(target, ast.Name) and target.id.endswith("_loss")
                if named and not isinstance(node.value, ast.Constant):
                    assert isinstance(target, ast.Name)
                    yield Definition(target.id, "function", unknown)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                name = alias.asname or alias.name
                if name.endswith("_loss"):
                    yield Definition(name, "function", unknown)
        elif isinstance(node, ast.If | ast.Try | ast.With):
            for inner in ("body", "orelse", "finalbody"):
                yield from _found(getattr(node, inner, []))


def _signature(arguments: ast.arguments, *, bound: bool = False) -> Signature:
    """Read a signature; ``bound`` leaves ``self`` out."""
    given = [a.arg for a in (*arguments.posonlyargs, *arguments.args)][1 if bound else 0 :]
    only = {a.arg for a in arguments.posonlyargs}
    keywords = frozenset({*given, *(a.arg for a in arguments.kwonlyargs)} - only)
    # What has to be given by name and has no default counts as needed too many.
    needed = sum(default is None for default in arguments.kw_defaults)
    required = len(given) - len(arguments.defaults) + needed
    anything = arguments.kwarg is not None or (arguments.vararg is not None and not given)
    return Signature(tuple(given), required, keywords, anything)


def _told(found: Mapping[str, Definition]) -> str:
    names = ", ".join(found) or "no function or module"
    return f"Found: {names}."
