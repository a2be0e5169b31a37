"""The names of the checks of ``losscli verify``, from their sources, without importing torch."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Any


@cache
def check_names() -> dict[str, str]:
    """Return what each check of ``losscli verify`` catches, by its name."""
    folder = Path(__file__).parent.parent / "verify" / "checks"
    order = [
        node.value.id
        for node in ast.walk(_parsed(folder / "__init__.py"))
        if isinstance(node, ast.Attribute) and node.attr == "CHECK"
        if isinstance(node.value, ast.Name)
    ]
    return dict(_check(_parsed(folder / f"{module}.py")) for module in order)


def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _check(module: ast.Module) -> tuple[str, str]:
    """Return the first and the third argument of ``CHECK = Check(name, pass, catches, ...)``."""
    call: Any = next(
        node.value
        for node in module.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CHECK"
    )
    return ast.literal_eval(call.args[0]), ast.literal_eval(call.args[2])
