"""A plan as the text of build.ninja."""

from __future__ import annotations

import shlex

from .plan import Edge, Plan

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


def render(plan: Plan) -> str:
    """Return build.ninja; the same plan gives the same text."""
    return "\n".join([_HEADER, *map(_render_edge, plan.edges)])


def _render_edge(edge: Edge) -> str:
    rule = "compile" if edge.depfile else "link"
    inputs = " ".join(map(_path, edge.inputs))
    return (
        f"build {_path(edge.output)}: {rule} {inputs}\n"
        f"  run = {_escape(shlex.join(edge.command))}\n"
        f"  what = {_escape(edge.description)}\n"
    ) + (f"  depfile = {_escape(edge.depfile)}\n" if edge.depfile else "")


def _path(path: str) -> str:
    return _escape(path).replace(" ", "$ ").replace(":", "$:")


def _escape(text: str) -> str:
    return text.replace("$", "$$")
