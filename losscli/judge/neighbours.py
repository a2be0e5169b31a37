"""Tells whether what a file does depends on files beside it, which its own hash does not cover."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

_LONGEST = 255
"""Characters of a name of a file; a longer text names none."""


def stands_alone(source: str, folder: Path) -> bool:
    """Tell whether a source imports and names no file of its own folder.

    What is put together at run time is not seen.

    Args:
        source: of a file that is Python.
        folder: that the file lies in.
    """
    nodes = list(ast.walk(ast.parse(source)))
    if any(isinstance(node, ast.Name) and node.id == "__file__" for node in nodes):
        return False
    if any(
        (folder / f"{name}.py").exists() or (folder / name).is_dir() for name in _imported(nodes)
    ):
        return False
    return not any(_names_a_file(node, folder) for node in nodes)


def _imported(nodes: list[ast.AST]) -> Iterator[str]:
    """Yield the first word of each module that is imported."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def _names_a_file(node: ast.AST, folder: Path) -> bool:
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return False
    text = node.value
    if not 0 < len(text) <= _LONGEST or "\0" in text:
        return False
    try:
        return (folder / text).is_file()
    except OSError:
        return False
