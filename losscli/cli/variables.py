"""Environment variables for options: ``LOSSCLI_BENCH_SIZE`` sets ``losscli bench --size``.

click's own are named like Python's parameters and split at spaces, and no error names them.
"""

import os
from functools import partial
from typing import Any

import click
from click.core import ParameterSource

from losscli.errors import UsageError

FOR_ALL = ("device", "quiet", "debug")
"""Options that have a variable for all commands too, such as LOSSCLI_DEVICE."""
EXCEPT = {("build", "device")}
"""Options with other values than in other commands: `losscli build` takes no ``cuda:1``."""


class Option(click.Option):
    """An option that a variable may set; errors of its value name the variable."""

    def value_from_envvar(self, ctx: click.Context) -> Any:
        """Return the variable's value without splitting it at spaces."""
        value = self.resolve_envvar_value(ctx)
        return [value] if value and self.multiple else super().value_from_envvar(ctx)

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return names and help; of a switch that is on, the name that turns it off."""
        record = super().get_help_record(ctx)
        return (self.secondary_opts[0], record[1]) if record and self.default is True else record

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        """Return the converted value."""
        try:
            return super().process_value(ctx, value)
        except UsageError as error:
            if not (variable := variable_of(ctx, self)) or type(error) is not UsageError:
                raise
            raise UsageError(f"{variable}: {error}") from None


option = partial(click.option, cls=Option)
switch = partial(option, is_flag=True)


def variables_of(command: str, option: click.Option) -> list[str]:
    """Return the variables that set a command's option, the first has precedence."""
    name = long_name(option).removeprefix("--")
    own = f"LOSSCLI_{command}_{name}"
    shared = [f"LOSSCLI_{name}"] if name in FOR_ALL and (command, name) not in EXCEPT else []
    return [variable.upper().replace("-", "_") for variable in (own, *shared)]


def long_name(option: click.Parameter) -> str:
    """Return the longest name of an option, such as ``--output``."""
    return max(option.opts, key=len)


def add_variables(command: click.Command, name: str) -> None:
    """Let variables set each option of a command, and add them to its help."""
    options = [option for option in command.params if isinstance(option, click.Option)]
    for option in options:
        option.envvar = variables_of(name, option)
    example = next((option for option in options if not option.is_flag), options[0])
    shared = [found[1] for option in options if len(found := variables_of(name, option)) > 1]
    command.epilog = (
        f"Environment variables set options not given, e.g. {variables_of(name, example)[0]} for "
        f"{long_name(example)}; {', '.join(shared[:-1])} and {shared[-1]} in all commands.\n"
    )


def variables() -> list[str]:
    """Return ``NAME=VALUE`` of each variable that sets an option and affects results."""
    if not (context := click.get_current_context(silent=True)):
        return []
    options = (each for each in context.command.params if each.name not in ("quiet", "debug"))
    found = (variable_of(context, option) for option in options)
    return [f"{variable}={os.environ[variable]}" for variable in found if variable]


def wrong_switch(error: click.UsageError) -> str:
    """Return the message for a switch whose variable is neither on nor off, or nothing."""
    if not isinstance(error, click.BadParameter) or not error.ctx or not error.param:
        return ""
    variable, wrong = variable_of(error.ctx, error.param), "is neither on nor off. Write 1 or 0."
    return f"{variable}: '{os.environ[variable]}' {wrong}" if variable else ""


def variable_of(context: click.Context, option: click.Parameter) -> str | None:
    """Return the variable that set an option."""
    if context.get_parameter_source(option.name or "") is not ParameterSource.ENVIRONMENT:
        return None
    return next((name for name in option.envvar or () if os.environ.get(name)), None)
