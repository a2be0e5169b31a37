"""The expression of ``--call``: the names in it, and whether a file and its loss have them."""

from __future__ import annotations

import ast
import builtins
import difflib
from collections.abc import Iterator

from losscli.errors import MOST_NAMES, UsageError, unknown
from losscli.implementations.definitions import PAIR, NotJudgeableError
from losscli.losses import EVERY_LOSS, Spec
from losscli.reasons import Code

_UNKNOWABLE = {"exec", "globals", "vars", "setattr", "__getattr__"}
"""Names in a file that may define others."""


def names_in(expression: str) -> tuple[str, ...]:
    """Return the names that an expression uses; NotJudgeableError if it is none."""
    nodes = [*ast.walk(_parsed(expression))]
    own = {node.arg for node in nodes if isinstance(node, ast.arg)}
    names = [node for node in nodes if isinstance(node, ast.Name)]
    own |= {name.id for name in names if isinstance(name.ctx, ast.Store)}
    return tuple(name.id for name in names if name.id not in own)


def check_names(expression: str, program: str, loss: str) -> None:
    """Raise UsageError if a name is none of a program, a loss (or any loss) or Python."""
    own, others = _given(loss)
    try:
        tree = ast.parse(program)
    except (SyntaxError, ValueError, RecursionError):
        return  # the verdict says so
    nodes = [*ast.walk(tree)]
    known = {*_defined(nodes)}
    if "*" in known or not _UNKNOWABLE.isdisjoint({*_used(nodes)}):
        return
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for name in names_in(expression):
        if name not in {*own, *others, *known} and not hasattr(builtins, name):
            close = difflib.get_close_matches(name, [*own, *functions, *others, *known], n=1)
            likely = [*dict.fromkeys([*own, *functions])][:MOST_NAMES]
            likely += [each for each in close if each not in likely]
            raise UsageError(f"--call: {unknown('name', name, likely)}")
    for node in ast.walk(_parsed(expression)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            function = functions.get(node.func.id)
            if function and [*_defined(nodes)].count(function.name) == 1:
                _check_keywords(node, function)


def _check_keywords(call: ast.Call, function: ast.FunctionDef) -> None:
    arguments = function.args
    if arguments.kwarg or function.decorator_list:
        return
    taken = [each.arg for each in (*arguments.args, *arguments.kwonlyargs)]
    for keyword in call.keywords:
        if keyword.arg and keyword.arg not in taken:
            text = unknown(f"argument of {function.name}", keyword.arg, taken)
            raise UsageError(f"--call: {text}")


def _given(loss: str) -> tuple[list[str], set[str]]:
    """Return the operands and settings of a loss, and those of its other forms, or of any loss."""
    spec = EVERY_LOSS.get(loss)
    forms = [
        each
        for each in EVERY_LOSS.values()
        if not spec or spec.function_name in each.function_names
    ]
    others = {name for each in forms for name in (*each.names, *_settings(each))}
    if not spec:
        return [*PAIR, "reduction"], others
    return [*spec.names, "reduction", *_settings(spec)], others


def _settings(spec: Spec) -> list[str]:
    return [parameter.name for parameter in spec.parameters]


def _parsed(expression: str) -> ast.Expression:
    try:
        return ast.parse(expression, "--call", "eval")
    except (SyntaxError, ValueError) as error:
        text = f"--call {expression!r} is not a Python expression: {getattr(error, 'msg', error)}"
        example = "Write one over the loss's operands, such as 'fused(input, target)[0].mean()'"
        raise NotJudgeableError(Code.SIGNATURE, f"{text}. {example}") from None


def _used(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Name):
            yield node.id


def _defined(nodes: list[ast.AST]) -> Iterator[str]:
    """Yield every name that a file binds anywhere: more than its module has, but no fewer."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.partition(".")[0]
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            yield node.name
