"""The definitions of a source file that can be losses, read from its syntax tree."""

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product, takewhile
from typing import Any, Literal, Self

from losscli.errors import UsageError
from losscli.reasons import Code

INPUT_NAMES = (
    *("input", "inputs", "inp", "x", "pred", "preds", "prediction", "predictions"),
    *("y_pred", "y_hat", "yhat", "output", "outputs", "out", "logits", "score", "scores"),
)
TARGET_NAMES = (
    *("target", "targets", "tgt", "label", "labels", "y", "y_true", "true", "t", "truth"),
    *("gt", "expected"),
)
PAIRED = (("forward", "backward"), ("fwd", "bwd"))
"""Endings of the names of a loss and the function for its gradients."""
PAIR = ("input", "target")
_LARGEST = 1e30
"""Larger numbers are not parameters."""
_LOADERS = frozenset({"load_inline", "load", "CDLL", "LoadLibrary", "import_module", "RawModule"})
"""Functions that return a compiled module or library, which is never a loss."""


class NotJudgeableError(UsageError):
    """A file defines nothing that can be called as a loss; ``code`` is the verdict's."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class Signature:
    """The arguments of a function definition."""

    names: tuple[str, ...]
    """Arguments that may be passed by position, without ``self``."""
    required: int
    """How many of them have no default."""
    keywords: frozenset[str]
    """Arguments that may be passed by keyword."""
    anything: bool = False
    """Whether it is defined elsewhere, or takes only ``*arguments``."""
    needed: frozenset[str] = frozenset()
    """Keyword-only arguments without a default."""
    defaults: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def takes(self, keyword: str) -> bool:
        """Tell whether an argument can be passed by keyword."""
        return self.anything or keyword in self.keywords

    def without(self, settings: Collection[str], operands: int) -> Self:
        """Return the signature without settings, unless too few arguments for operands remain."""
        kept = tuple(n for n in self.names if n not in settings or n not in self.keywords)
        if len(kept) < operands:
            return self
        # What follows a setting goes by keyword: by position it would be the setting.
        leading = tuple(takewhile(kept.__contains__, self.names))
        behind = self.names[len(leading) : self.required]
        needed = self.needed | {name for name in behind if name in kept}
        required = min(self.required, len(leading))
        return replace(self, names=leading, required=required, needed=needed)

    def is_loss(self, operands: tuple[str, ...]) -> bool:
        """Tell whether the first two arguments are named after ``operands``."""
        names = [name.lower() for name in self.names[:2]]
        known = {*INPUT_NAMES, *TARGET_NAMES, *operands}
        return self.anything or (len(names) == 2 and {*names} <= known)

    def order(self, operands: tuple[str, ...], given: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Return the operands to pass by position, ``given`` a user's order; NotJudgeableError."""
        if given:
            of_pair = dict(zip(PAIR, operands, strict=False))
            said = tuple(each if each in operands else of_pair.get(each, each) for each in given)
            if {*said} <= {*operands} and len({*said}) == len(said) > 1:
                return said
            text = f"expected an order of {', '.join(operands)}, given {', '.join(given)}"
            raise NotJudgeableError(Code.SIGNATURE, text)
        if self.anything and not self.names:
            return operands[:2]
        if len(self.names) < 2 and not self.keywords.issuperset(operands[:2]):
            raise self._unfit(operands)
        # By name, then by the usual names of input and target, then in order.
        names = [name.lower() for name in self.names]
        places = {names.index(each): each for each in operands if each in names}
        for kind, usual in zip(PAIR, (INPUT_NAMES, TARGET_NAMES), strict=True):
            # If the loss has no operand of this name, its first or second one.
            operand = kind if kind in operands else operands[PAIR.index(kind)]
            found = [n for n, name in enumerate(names[: max(self.required, 2)]) if name in usual]
            if found and operand not in {*places.values(), *self.keywords}:
                # In (y, t) the last is the target.
                places.setdefault(found[0] if kind == "input" else found[-1], operand)
        rest = [each for each in operands if each not in {*places.values(), *self.keywords}]
        free = [n for n in range(max(self.required, 2)) if n not in places]
        places |= dict(zip(free, rest, strict=False))
        leading = tuple(places[n] for n in range(len(names)) if places.keys() >= {*range(n + 1)})
        missing = [each for each in operands[:2] if each not in {*leading, *self.keywords}]
        if missing or self.required > len(leading) or not self.needed <= {*operands}:
            raise self._unfit(operands)
        return leading

    def _unfit(self, operands: tuple[str, ...]) -> NotJudgeableError:
        found = ", ".join((*self.names, *sorted(self.needed))) or "none"
        *others, last = operands
        text = f"expected arguments for {', '.join(others)} and {last}, found {found}"
        return NotJudgeableError(Code.SIGNATURE, f"{text}. Write ({', '.join(operands)}, ...)")


UNKNOWN = Signature((), 0, frozenset(), anything=True)
NO_ARGUMENTS = Signature((), 0, frozenset())


@dataclass(frozen=True)
class Definition:
    """A callable in a file that can be judged as a loss."""

    name: str
    kind: Literal["function", "module"]
    signature: Signature
    """The arguments of the function, or of the module's forward."""
    constructor: Signature | None = None
    """The arguments of a module's constructor; None for a function."""
    backward: "Definition | None" = None
    """The function for the gradients of ``X_forward``."""
    imported: bool = False

    def takes(self, keyword: str) -> bool:
        """Tell whether the callable or the constructor accepts a keyword."""
        return any(s.takes(keyword) for s in (self.signature, self.constructor) if s)


@dataclass(frozen=True)
class Parsed:
    """The top-level definitions of a source, by name."""

    definitions: Mapping[str, Definition]
    compiled: frozenset[str]
    uses: Mapping[str, frozenset[str]]
    """The names that each definition uses."""
    imports: frozenset[str]
    """Imported top-level modules; those of its own package after dots."""
    origins: Mapping[str, tuple[str, str]]
    """The module, with dots, and the name there of each name imported from a module."""
    open_imports: tuple[str, ...]
    """The modules, with dots, from which every name is imported."""
    texts: frozenset[str]
    numbers: tuple[float, ...]
    """Literal numbers, in order."""
    made_with: tuple[Any, ...] | None
    """The literals that ``get_init_inputs`` returns; None if it computes them."""
    names_itself: bool
    """Whether it uses ``__file__``."""

    @classmethod
    def read(cls, source: str, path: str) -> Self:
        """Parse a source; NotJudgeableError if it is not Python."""
        try:
            tree = ast.parse(source, path)
        except (SyntaxError, ValueError, RecursionError) as error:
            line = getattr(error, "lineno", None)
            where = f"{path}:{line}" if line else path
            what = getattr(error, "msg", None) or str(error)
            raise NotJudgeableError(Code.SYNTAX, f"{where}: {what}") from None
        compiled = _compiled(tree)
        uses: dict[str, frozenset[str]] = {}
        for node in _statements(tree.body):
            used = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
            for name in _bound(node):
                uses[name] = frozenset({*uses.get(name, ()), *used})
        found = _paired({each.name: each for each in _found(tree) if each.name not in compiled})
        nodes = list(ast.walk(tree))
        constants = [node.value for node in nodes if isinstance(node, ast.Constant)]
        texts = frozenset(value for value in constants if isinstance(value, str))
        literal = [n for n in constants if isinstance(n, int | float) and not isinstance(n, bool)]
        numbers = tuple(dict.fromkeys(float(n) for n in literal if abs(n) < _LARGEST))
        made_with, imports = _written_out(tree, "get_init_inputs"), frozenset(_imported(nodes))
        named = any(isinstance(node, ast.Name) and node.id == "__file__" for node in nodes)
        origins = [
            (alias.asname or alias.name, ("." * node.level + (node.module or ""), alias.name))
            for node in _statements(tree.body)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        ]
        every = tuple(module for name, (module, _) in origins if name == "*")
        return cls(
            found, compiled, uses, imports, dict(origins), every, texts, numbers, made_with, named
        )

    def used_by(self, name: str) -> set[str]:
        """Return the names that a definition uses, also indirectly."""
        found: set[str] = set()
        following = {name}
        while following:
            found |= following
            following = set().union(*(self.uses.get(each, ()) for each in following)) - found
        return found - {name}


def _imported(nodes: Sequence[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield "." * node.level + node.module.partition(".")[0]


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield top-level statements, and those in conditions that may hold on import."""
    for node in body:
        yield node
        if isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'":
            continue
        if isinstance(node, ast.If | ast.Try | ast.With):
            for inner in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(node, inner, []))


def _written_out(tree: ast.Module, name: str) -> tuple[Any, ...] | None:
    """Return the literals that a function returns, or None."""
    for node in _statements(tree.body):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            body = [each for each in node.body if not isinstance(each, ast.Expr)]
            if len(body) == 1 and isinstance(body[0], ast.Return) and body[0].value:
                with suppress(ValueError):
                    return tuple(ast.literal_eval(body[0].value))
    return None


def _bound(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _compiled(tree: ast.Module) -> frozenset[str]:
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
    return frozenset(names)


def _found(tree: ast.Module) -> Iterator[Definition]:
    for node in _statements(tree.body):
        if isinstance(node, ast.FunctionDef):
            yield Definition(node.name, "function", _signature(node.args))
        elif isinstance(node, ast.ClassDef):
            methods = {m.name: m for m in node.body if isinstance(m, ast.FunctionDef)}
            forward, made = methods.get("forward"), methods.get("__init__")
            if forward and any(ast.unparse(base).endswith("Function") for base in node.bases):
                yield Definition(node.name, "function", _signature(forward.args, bound=True))
            elif forward or any("Module" in ast.unparse(base) for base in node.bases):
                called = _signature(forward.args, bound=True) if forward else UNKNOWN
                constructor = _signature(made.args, bound=True) if made else NO_ARGUMENTS
                yield Definition(node.name, "module", called, constructor)
        elif isinstance(node, ast.Assign) and not isinstance(node.value, ast.Constant):
            named = (name for name in _bound(node) if name.endswith("_loss"))
            yield from (Definition(name, "function", UNKNOWN) for name in named)
        elif isinstance(node, ast.ImportFrom):
            imported = (alias.asname or alias.name for alias in node.names)
            named = (name for name in imported if name.endswith("_loss"))
            yield from (Definition(name, "function", UNKNOWN, imported=True) for name in named)


def _paired(found: dict[str, Definition]) -> dict[str, Definition]:
    """Return the definitions with the backward function of each forward function."""
    paired = dict(found)
    for (name, definition), (forward, backward) in product(found.items(), PAIRED):
        twin = found.get(f"{name.removesuffix(forward)}{backward}")
        if name.endswith(forward) and twin and {twin.kind, definition.kind} == {"function"}:
            paired[name] = replace(definition, backward=twin)
    return paired


def _signature(arguments: ast.arguments, *, bound: bool = False) -> Signature:
    given = [a.arg for a in (*arguments.posonlyargs, *arguments.args)][1 if bound else 0 :]
    only = {a.arg for a in arguments.posonlyargs}
    only_named = [a.arg for a in arguments.kwonlyargs]
    required = len(given) - len(arguments.defaults)
    values = dict(zip(given[required:], arguments.defaults, strict=True))
    values |= {n: each for n, each in zip(only_named, arguments.kw_defaults, strict=True) if each}
    defaults = dict[str, Any]()
    for name, value in values.items():
        with suppress(ValueError):
            defaults[name] = ast.literal_eval(value)
    keywords, needed = frozenset({*given, *only_named} - only), frozenset({*only_named} - {*values})
    anything = arguments.vararg is not None and not given
    return Signature(tuple(given), required, keywords, anything, needed, defaults)
