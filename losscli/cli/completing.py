"""The values that a shell completes: names and files, without importing torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import click
from click.shell_completion import CompletionItem

from losscli.errors import LosscliError

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
Names = Callable[[], Iterable[str]]

COMPLETE = "_LOSSCLI_COMPLETE"
"""The variable by which a shell asks for completions."""
FILE_METAVARS = ("FILE", "FILE...", "PATH")
"""Of the options and arguments that take a file."""
DEVICES = ("auto", "cpu", "cuda")


def listed(names: Names, *, files: bool = False, commas: bool = False) -> Complete:
    """Return what completes names.

    Args:
        names: returns them; called when a shell asks.
        files: whether a file may stand there as well.
        commas: whether the value is a list with commas.
    """

    def complete(
        context: click.Context, option: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        before, comma, last = incomplete.rpartition(",") if commas else ("", "", incomplete)
        try:
            found = [f"{before}{comma}{name}" for name in names() if name.startswith(last)]
        except (LosscliError, OSError):  # such as a folder of runs that cannot be read
            found = []
        as_files = [CompletionItem(incomplete, type="file")] if files and not comma else []
        return [*map(CompletionItem, found), *as_files]

    return complete


def add_completion(command: click.Command) -> None:
    """Let files and devices be completed in a command."""
    for parameter in command.params:
        if parameter._custom_shell_complete:
            continue
        if parameter.metavar in FILE_METAVARS:
            parameter._custom_shell_complete = listed(list, files=True)
        elif parameter.name == "device" and not isinstance(parameter.type, OneOf):
            parameter._custom_shell_complete = listed(lambda: DEVICES)


class OneOf(click.ParamType):  # type: ignore[type-arg]  # generic only in newer clicks
    """The type of an option or argument that takes one of a few names."""

    def __init__(self, kind: str, candidates: Iterable[str]) -> None:
        self.name, self.candidates = kind, tuple(candidates)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name, or raise UsageError with the candidates."""
        from losscli.config.fields import check_name

        return check_name(self.name, value, self.candidates)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names that begin so."""
        return [CompletionItem(name) for name in self.candidates if name.startswith(incomplete)]
