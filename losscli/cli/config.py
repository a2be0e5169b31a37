"""`losscli config`: check configs, show one in full, print their JSON Schema."""

import json
from pathlib import Path
from typing import Any

import click

from losscli.cli.options import axis_options_of_config, examples, format_option, overrides_of
from losscli.cli.variables import variable_of
from losscli.config.expansion import expand
from losscli.config.keys import json_schema
from losscli.config.loader import load, load_config, shipped_configs
from losscli.config.positions import excerpt
from losscli.config.showing import shown, yaml_lines
from losscli.console.streams import emit
from losscli.errors import EXIT_OK, EXIT_USAGE, ConfigError, UsageError, unknown
from losscli.render import output
from losscli.views.phrases import count


class _Group(click.Group):
    """A group that explains a file in place of a command."""

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name in self.commands or name.startswith("-"):
            return super().get_command(context, name)
        if Path(name).suffix in (".yaml", ".yml") or name in shipped_configs():
            said = f"expected a command before '{name}': {', '.join(self.commands)}."
            raise UsageError(f"{said} Write `losscli config show {name}`.")
        raise UsageError(unknown("command of losscli config", name, self.commands))


@click.group("config", cls=_Group)
@examples(
    "losscli config check mine.yaml",
    "losscli config show rows.yaml --dtype bfloat16",
    "losscli config schema > schema.json",
)
def command() -> None:
    """Check configs, show one in full, or print their JSON Schema."""


@command.command("check")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@format_option(("table", "json"), "Write the report as table or json.")
@examples(
    "losscli config check mine.yaml",
    "losscli config check configs/*.yaml",
    "losscli config check mine.yaml --format json",
    after="Exit codes: 0 all are right, 2 one is wrong.",
)
def check(files: tuple[str, ...], format: str) -> int:
    """Check configs: all errors of each, with their lines.

    FILE is a path, or the name of a shipped config. Nothing runs.
    """
    found = {file: _checked(file) for file in files}
    errors = [error for _, errors in found.values() for error in errors]
    if format == "json":
        fields = ("file", "line", "column", "message")
        emit(json.dumps([{f: getattr(error, f) for f in fields} for error in errors], indent=2))
    else:
        lines: list[str] = []
        for file, (said, own) in found.items():
            for error in own:
                lines += [str(error), *excerpt(Path(error.file), error.line, error.column)]
            lines.append(f"{file}: {said}")
        output.show("\n".join(lines))
    return EXIT_USAGE if errors else EXIT_OK


def _checked(file: str) -> tuple[str, tuple[ConfigError, ...]]:
    try:
        blocks = load_config(file, {}).blocks
    except ConfigError as found:
        return count(len(found.errors), "error"), found.errors
    except UsageError as error:  # no such file; check the others
        return "1 error", (ConfigError(str(error)),)
    cases = sum(1 for block in blocks for _ in expand(block, "cpu"))
    return f"ok, {count(len(blocks), 'table')}, {count(cases, 'case')}", ()


@command.command("show")
@click.argument("file", required=False)
@axis_options_of_config
@format_option(("yaml", "json"), "Write the config as yaml or json.")
@examples(
    "losscli config show rows.yaml",
    "losscli config show mine.yaml --size 4096x4096 > full.yaml",
    "losscli config show --format json",
)
def show(file: str | None, format: str, **options: Any) -> None:
    """Show a config in full, with where each value came from.

    The output is a config by itself. Without FILE it shows default.yaml. Options that choose
    cases override the file, as they do in verify and bench; those of timing are not taken.
    """
    overrides = overrides_of(**options)
    context = click.get_current_context()
    given = {each.name: variable_of(context, each) for each in context.command.params}
    sources = {key: given[key] or "command line" for key in overrides}
    keys = shown(*load(file, overrides), sources)
    emit(json.dumps(keys, indent=2) if format == "json" else "\n".join(yaml_lines(keys)))


@command.command("schema")
@examples("losscli config schema > schema.json")
def schema() -> None:
    """Print the JSON Schema of a config, for editors and other programs.

    With the line `# yaml-language-server: $schema=schema.json` in a config, an editor completes its
    keys and marks its errors.
    """
    emit(json.dumps(json_schema(), indent=2))
