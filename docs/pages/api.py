"""The reference of the public Python functions and modules, from their docstrings."""

from __future__ import annotations

import losscli.functional
import losscli.nn

JUDGE = """\
```{eval-rst}
.. py:function:: losscli.judge(path, *, loss="", reference="", call="", device="auto", ...)

   Judge a file and return its :class:`~losscli.judge.verdict.Verdict`. ``path`` is ``FILE``,
   ``FILE:NAME``, ``FILE@REVISION`` or ``PACKAGE.MODULE:NAME``; the arguments are the keys of a job:
   see `judging <judging.html>`_. ``losscli.judge_many(jobs)`` judges several side by side.

   :raises UsageError: there is no such file, loss or device.
```
"""
"""The package ``losscli.judge`` is a function as well, which autodoc does not see."""

PATCHING = ("patch", "unpatch", "patched")


def page() -> str:
    """Return the page that lists them for autodoc."""
    parts = [
        "# Python\n",
        _directive("autofunction", "losscli.load"),
        *(_directive("autofunction", f"losscli.{name}") for name in PATCHING),
        JUDGE,
        "## Functions\n",
        _directive("automodule", "losscli.functional", ":no-members:"),
    ]
    parts += [
        _directive("autofunction", f"losscli.functional.{name}")
        for name in losscli.functional.__all__
    ]
    parts += ["## Modules\n", _directive("automodule", "losscli.nn", ":no-members:")]
    parts += [_directive("autoclass", f"losscli.nn.{name}") for name in losscli.nn.__all__]
    return "\n".join(parts)


def _directive(kind: str, name: str, *options: str) -> str:
    lines = [f".. {kind}:: {name}", *(f"   {option}" for option in options)]
    return "```{eval-rst}\n" + "\n".join(lines) + "\n```\n"
