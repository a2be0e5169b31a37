"""The expression of ``--call``: the names in it, and whether a file and its loss have them."""

import ast
import builtins
from symtable import SymbolTable, symtable

from losscli.errors import UsageError, unknown
from losscli.implementations.definitions import PAIR, NotJudgeableError
from losscli.losses import EVERY_LOSS, Spec
from losscli.reasons import Code

_UNKNOWABLE = {"exec", "eval", "globals", "locals", "vars", "setattr", "modules"}
"""Names in a file that may define others."""


def names_in(expression: str) -> tuple[str, ...]:
    """Return the names that an expression uses; NotJudgeableError if it is none."""
    try:
        nodes = [*ast.walk(ast.parse(expression, "--call", "eval"))]
    except (SyntaxError, ValueError) as error:
        text = f"--call {expression!r} is not a Python expression: {getattr(error, 'msg', error)}"
        example = "Write one over the loss's operands, such as 'fused(input, target)[0].mean()'"
        raise NotJudgeableError(Code.SIGNATURE, f"{text}. {example}") from None
    own = {node.arg for node in nodes if isinstance(node, ast.arg)}
    names = [node for node in nodes if isinstance(node, ast.Name)]
    own |= {name.id for name in names if isinstance(name.ctx, ast.Store)}
    return tuple(name.id for name in names if name.id not in own)


def check_names(expression: str, program: str, loss: str) -> None:
    """Raise UsageError for a name that is none of a program, of a loss, or of Python."""
    tree = ast.parse(program)
    nodes = [*ast.walk(tree)]
    bound = _bound(symtable(program, "--call", "exec"))
    used = {node.id if isinstance(node, ast.Name) else getattr(node, "attr", "") for node in nodes}
    imported = {node.name for node in nodes if isinstance(node, ast.alias)}
    if "*" in imported or used & _UNKNOWABLE:
        return
    spec = EVERY_LOSS.get(loss)
    forms = [s for s in EVERY_LOSS.values() if not spec or spec.function_name in s.function_names]
    known = bound.union(*map(_given, forms))
    for name in names_in(expression):
        if name not in known and not hasattr(builtins, name) and not name.startswith("__"):
            likely = _given(spec) if spec else [*PAIR, "reduction"]
            defined = [n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
            raise UsageError(f"--call: {unknown('name', name, [*likely, *defined])}")


def _given(spec: Spec) -> list[str]:
    return [*spec.names, "reduction", *(parameter.name for parameter in spec.parameters)]


def _bound(table: SymbolTable) -> set[str]:
    """Return every name that a file binds anywhere: more than its module has, but no fewer."""
    bound = (each for each in table.get_symbols() if each.is_assigned() or each.is_imported())
    return {each.get_name() for each in bound}.union(*map(_bound, table.get_children()))
