"""Finds the files of installed modules."""

from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path

from losscli.errors import UsageError


def path_of_module(name: str) -> Path:
    """Find an installed module without importing it or its packages."""
    folders: Sequence[str] | None = None
    spec, parts = None, name.split(".")
    for count, part in enumerate(parts, 1):
        spec = PathFinder.find_spec(".".join(parts[:count]), folders)
        if spec is None:
            raise UsageError(f"there is no module '{name}' here: '{part}' is not found.")
        folders = spec.submodule_search_locations and [*spec.submodule_search_locations]
    if spec is None or not (spec.origin or "").endswith(".py"):
        raise UsageError(f"the module '{name}' is not written in Python. Name a file of Python.")
    return Path(str(spec.origin))
