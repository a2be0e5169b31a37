"""Implementations in files of others: ``FILE``, ``FILE:NAME``, ``FILE@REVISION``.

A file is read, never imported, here: what it defines is found in its syntax tree. A worker imports
it, see ``sandbox``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from losscli.errors import UsageError
from losscli.losses import EVERY_LOSS, Spec
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
PAIR = ("input", "target")
"""The names of the operands of most losses."""
_LOADERS = frozenset({"load_inline", "load", "CDLL", "LoadLibrary", "import_module", "RawModule"})
"""Functions whose result is a compiled module or a library: no loss, whatever name it is given."""
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
    """How many of them, the first ones, have no default."""
    keywords: frozenset[str]
    """All that may be given by name."""
    anything: bool = False
    """Whether it takes any keyword, or its definition is not in the file."""
    needed: frozenset[str] = frozenset()
    """Those without a default that have to be given by name."""

    def takes(self, keyword: str) -> bool:
        """Tell whether an argument may be given by name."""
        return self.anything or keyword in self.keywords

    def is_loss(self, operands: tuple[str, ...] = PAIR) -> bool:
        """Tell whether the names of the first two arguments are those of operands."""
        names = [name.lower() for name in self.names[:2]]
        known = {*INPUT_NAMES, *TARGET_NAMES, *operands}
        return self.anything or (len(names) == 2 and {*names} <= known)

    def order(
        self, operands: tuple[str, ...] = PAIR, given: tuple[str, ...] = ()
    ) -> tuple[str, ...]:
        """Return the operands that are given by position, in that order; the others by name.

        An argument is the operand of its own name; one with a usual name of an input or a target is
        that one. What is left goes to the arguments that have no default, in the order of the loss.

        Args:
            operands: the names of the loss's operands.
            given: the order that the user has said; empty to find it from the names.

        Raises:
            NotJudgeableError: an operand has no argument, or an argument without a default is none.
        """
        if given:
            return self._as_given(operands, given)
        if self.anything and not self.names:
            return operands[:2]
        if len(self.names) < 2:
            raise self._unfit(operands)
        names = [name.lower() for name in self.names]
        places = {names.index(each): each for each in operands if each in names}
        for kind, usual in zip(PAIR, (INPUT_NAMES, TARGET_NAMES), strict=True):
            # Of a loss without an operand of this name, the first or the second one.
            operand = kind if kind in operands else operands[PAIR.index(kind)]
            found = [n for n, name in enumerate(names[: max(self.required, 2)]) if name in usual]
            if found and operand not in {*places.values(), *self.keywords}:
                # Of (y, t) the last is the target.
                places.setdefault(found[0] if kind == "input" else found[-1], operand)
        rest = [each for each in operands if each not in {*places.values(), *self.keywords}]
        free = [n for n in range(max(self.required, 2)) if n not in places]
        places |= dict(zip(free, rest, strict=False))
        leading = tuple(places[n] for n in range(len(names)) if places.keys() >= {*range(n + 1)})
        missing = [each for each in operands[:2] if each not in {*leading, *self.keywords}]
        if missing or self.required > len(leading) or not self.needed <= {*operands}:
            raise self._unfit(operands)
        return leading

    def lacks(self, operands: tuple[str, ...], given: tuple[str, ...] = ()) -> str:
        """Return the name of an operand that cannot be given; empty where all can."""
        order = self.order(operands, given)
        return next((each for each in operands if each not in order and not self.takes(each)), "")

    def _as_given(self, operands: tuple[str, ...], given: tuple[str, ...]) -> tuple[str, ...]:
        """Return the order that the user has said; input and target are the first two as well."""
        said = tuple(
            operands[PAIR.index(each)] if each in PAIR and each not in operands else each
            for each in given
        )
        if {*said} <= {*operands} and len({*said}) == len(said) > 1:
            return said
        text = f"expected an order of {', '.join(operands)}, given {', '.join(given)}"
        raise NotJudgeableError("signature", text)

    def _unfit(self, operands: tuple[str, ...]) -> NotJudgeableError:
        found = ", ".join((*self.names, *sorted(self.needed))) or "none"
        *others, last = operands
        text = f"expected arguments for {', '.join(others)} and {last}, found {found}"
        return NotJudgeableError("signature", f"{text}. Write ({', '.join(operands)}, ...)")


@dataclass(frozen=True)
class Definition:
    """Something in a file that can be called as a loss."""

    name: str
    kind: Literal["function", "module"]
    signature: Signature
    """The arguments of the function, or of the module's forward."""
    constructor: Signature | None = None
    """The arguments with which a module is made; None for a function."""

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
    """The name of the function or class; empty to find it."""
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
        operands = EVERY_LOSS[loss].names if loss in EVERY_LOSS else PAIR
        wanted = [name for name in known if name in found]
        if not wanted:
            public = [name for name in found if not name.startswith("_")]
            losses = [name for name in public if name.endswith("_loss")] or public
            named = {*EVERY_LOSS, *map(_function_name, EVERY_LOSS)}
            of_others = named & set(losses)
            reference = {REFERENCE_MODULE, "get_inputs", "get_init_inputs"}
            losses = [name for name in losses if name not in of_others | reference]
            functions = [name for name in losses if found[name].kind == "function"]
            wanted = [
                name
                for name in functions or losses
                if name.endswith("_loss") or found[name].signature.is_loss(operands)
            ]
        if not wanted:
            function = f"a function {_function_name(loss)} or " if loss else ""
            text = f"{self.named}: expected {function}a class {MODULE}"
            raise NotJudgeableError("nothing_to_judge", f"{text}. {_told(found)}")
        if len(wanted) > 1 and MODULE in wanted:
            helpers = _used_by(MODULE, ast.parse(self.source))
            wanted = [name for name in wanted if name == MODULE or name not in helpers]
        if len(wanted) > 1:
            text = f"{self.named}: several could be meant: {', '.join(wanted)}"
            command = f"losscli judge {self.named}:{wanted[0]}"
            raise NotJudgeableError("ambiguous", f"{text}. Name one, as in `{command}`")
        return found[wanted[0]]

    def unavailable(
        self, loss: str, reduction: str, spec: Spec, parameters: Mapping[str, float]
    ) -> Reason | None:
        """Return why what it defines cannot run a case; None if it can."""
        try:
            definition = self.definition(loss)
            misfit = self.misfit(definition, spec)
        except NotJudgeableError as error:
            return Reason("not_applicable", str(error).rstrip("."))
        takes = definition.takes
        if misfit:
            return Reason("not_applicable", misfit)
        if reduction != "mean" and len(spec.reductions) > 1 and not takes("reduction"):
            return Reason("not_applicable", f"{definition.name} takes no reduction")
        for parameter in spec.parameters:
            value = parameters.get(parameter.name, parameter.default)
            if value not in (parameter.default, parameter.absent) and not takes(parameter.name):
                return Reason("not_applicable", f"{definition.name} takes no {parameter.name}")
        return None

    def misfit(self, definition: Definition, spec: Spec, given: tuple[str, ...] = ()) -> str:
        """Return why the operands of a loss cannot all be given; empty where they can.

        Raises:
            NotJudgeableError: see :meth:`Signature.order`.
        """
        signature = definition.signature
        if lacks := signature.lacks(spec.names, given):
            return f"{definition.name} takes no {lacks}"
        order = signature.order(spec.names, given)
        settings = {"reduction", *(parameter.name for parameter in spec.parameters)}
        for argument, operand in zip(signature.names, order, strict=False):
            if argument in settings:
                named = f"the argument {argument} of {definition.name} is the {operand}"
                return f"{named}, and {spec.name} has a setting of that name: rename it"
        return ""

    def defines(self, name: str) -> bool:
        """Tell whether the file defines something of a name, if only a compiled module."""
        known = _definitions(self.source, str(self.path))
        return name in known or name in _compiled(ast.parse(self.source))


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
    compiled = _compiled(tree)
    return {each.name: each for each in _found(tree) if each.name not in compiled}


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module's top level, those under its conditions as well."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With):
            for inner in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(node, inner, []))


def _bound(node: ast.stmt) -> list[str]:
    """Return the names that a statement defines or assigns."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _compiled(tree: ast.Module) -> set[str]:
    """Return the names that are bound to compiled modules."""
    names: set[str] = set()
    for node in _statements(tree.body):
        value = node.value if isinstance(node, ast.Assign) else None
        if isinstance(value, ast.Call):
            called = value.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            known = name in _LOADERS
        else:
            known = isinstance(value, ast.Name) and value.id in names
        names = names | {*_bound(node)} if known else names - {*_bound(node)}
    return names


def _used_by(name: str, tree: ast.Module) -> set[str]:
    """Return the names that a definition uses, and those that these use."""
    uses: dict[str, set[str]] = {}
    for node in _statements(tree.body):
        for bound in _bound(node):
            each = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
            uses.setdefault(bound, set()).update(each)
    found: set[str] = set()
    following = {name}
    while following:
        found |= following
        following = set().union(*(uses.get(each, set()) for each in following)) - found
    return found - {name}


def _found(tree: ast.Module) -> Iterator[Definition]:
    unknown = Signature((), 0, frozenset(), anything=True)
    for node in _statements(tree.body):
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


def _signature(arguments: ast.arguments, *, bound: bool = False) -> Signature:
    """Read a signature; ``bound`` leaves ``self`` out."""
    given = [a.arg for a in (*arguments.posonlyargs, *arguments.args)][1 if bound else 0 :]
    only = {a.arg for a in arguments.posonlyargs}
    keywords = frozenset({*given, *(a.arg for a in arguments.kwonlyargs)} - only)
    only_named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    needed = frozenset(each.arg for each, default in only_named if default is None)
    required = len(given) - len(arguments.defaults)
    anything = arguments.kwarg is not None or (arguments.vararg is not None and not given)
    return Signature(tuple(given), required, keywords, anything, needed)


def _told(found: Mapping[str, Definition]) -> str:
    names = ", ".join(found) or "no function or module"
    return f"Found: {names}."
