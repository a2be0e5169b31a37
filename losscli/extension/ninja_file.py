"""Writes plans as one build.ninja, so that the commands of all plans run in parallel."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from .plan import Plan, Step

# Each command keeps what it printed beside its output: after a build in which most objects were
# up to date, the log is whole all the same.
_RUN = "$run > $out.log 2>&1; status=$$?; cat $out.log; exit $$status"

_HEADER = f"""\
ninja_required_version = 1.11

rule compile
  command = {_RUN}
  description = $what
  deps = gcc

rule link
  command = {_RUN}
  description = $what
"""


def render(plans: Iterable[tuple[str, Plan]]) -> str:
    """Return build.ninja for plans with their folders; the same plans give the same text."""
    steps = [
        _render(step, command, folder)
        for folder, plan in plans
        for step, command in plan.commands(folder)
    ]
    return "\n".join([_HEADER, *steps])


def _render(step: Step, command: tuple[str, ...], folder: str) -> str:
    rule = "compile" if step.depfile else "link"
    inputs = " ".join(_path(f"{folder}/{name}") for name in step.inputs)
    return (
        f"build {_path(f'{folder}/{step.output}')}: {rule} {inputs}\n"
        f"  run = {_escape(shlex.join(command))}\n"
        f"  what = {_escape(step.description)}\n"
    ) + (f"  depfile = {_escape(f'{folder}/{step.depfile}')}\n" if step.depfile else "")


def _path(path: str) -> str:
    return _escape(path).replace(" ", "$ ").replace(":", "$:")


def _escape(text: str) -> str:
    return text.replace("$", "$$")
