"""The reference of the commands, from what click knows of them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from losscli.cli.main import COMMANDS, group


def every_command() -> Iterator[tuple[str, click.Command]]:
    """Return each command that `losscli --help` lists, and those within a command, by full name."""
    with click.Context(group, info_name="losscli") as context:
        for name in COMMANDS:
            command = group.get_command(context, name)
            assert command is not None
            yield from _with_inner(f"losscli {name}", command, context)


def _with_inner(
    name: str, command: click.Command, context: click.Context
) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        inner = click.Context(command, context, info_name=name)
        for each in command.list_commands(inner):
            found = command.get_command(inner, each)
            if found is not None and not found.hidden:
                yield from _with_inner(f"{name} {each}", found, inner)


def page() -> str:
    """Return the page of all commands."""
    parts = [
        "# Commands\n",
        "This page is made from the program; `losscli COMMAND --help` shows the same.\n",
        _block(group, "losscli"),
    ]
    for name, command in every_command():
        parts += [f"## {name}\n", _block(command, name)]
    return "\n".join(parts)


def _block(command: click.Command, name: str) -> str:
    """Return the usage, the help and the options of a command."""
    context = click.Context(command, info_name=name, **group.context_settings)
    rows = []
    for parameter in command.get_params(context):
        # With both names of a switch, of which the help shows one.
        of = click.Option if isinstance(parameter, click.Option) else type(parameter)
        record = of.get_help_record(parameter, context)
        if record is not None:
            rows.append(record)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    text = [f"```text\n{usage}\n```\n", _paragraphs(command.help or "")]
    text += [f"`{names}`\n: {_plain(told) or names}\n" for names, told in rows]
    return "\n".join(text)


def _paragraphs(help: str) -> str:
    """Return a help text in Markdown: what click must not wrap is a block of its own."""
    parts = []
    for paragraph in inspect.cleandoc(help).split("\n\n"):
        if paragraph.startswith("\b"):
            lines = paragraph.removeprefix("\b").strip("\n")
            parts.append(f"```text\n{lines}\n```\n")
        else:
            parts.append(_plain(paragraph) + "\n")
    return "\n".join(parts)


def _plain(text: str) -> str:
    """Return words that Markdown leaves as they are."""
    words = " ".join(text.split())
    for sign in "\\*_<>[]$":
        words = words.replace(sign, f"\\{sign}")
    return words
