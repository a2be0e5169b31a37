"""The files of the self-test of the judge that are a base and a change, as text.

``changes.yaml`` among the files has them: ``bases``, the texts with the words IMPORTS, SETUP and
BODY on lines of their own, and for each base the changes by the name of the file. A change has

- ``expect`` and the other options of the first lines, which ``losscli/judge/selftest.py`` lists;
- ``imports``: names of modules, or whole statements;
- ``setup``: what stands above the function;
- ``body``: what stands in it.
"""

from __future__ import annotations

import re
from textwrap import indent
from typing import Any

import yaml

_OPTIONS = ("expect", "gpu", "needs", "loss", "dtypes", "limits")
_PLACE = re.compile(r"^( *)(IMPORTS|SETUP|BODY)\n", re.MULTILINE)


def changed(changes: str) -> dict[str, str]:
    """Return the text of each file, by name."""
    known = yaml.safe_load(changes)
    return {
        name: _text(text, change)
        for base, text in known.pop("bases").items()
        for name, change in known[base].items()
    }


def _text(base: str, change: dict[str, Any]) -> str:
    if unknown := change.keys() - {*_OPTIONS, "imports", "setup", "body"}:
        raise ValueError(f"changes.yaml: {', '.join(unknown)}: no such key")
    imports = (each if " " in each else f"import {each}" for each in change.get("imports", ()))
    parts = {
        "IMPORTS": "\n".join(imports),
        "SETUP": change.get("setup", ""),
        "BODY": change.get("body", ""),
    }
    head = (
        f"# {option}" if change[option] is True else f"# {option}: {change[option]}"
        for option in _OPTIONS
        if option in change
    )
    text = _PLACE.sub(lambda at: indent(parts[at[2]].rstrip() + "\n", at[1]), base)
    return "\n".join([*head, text])
