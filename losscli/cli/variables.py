"""Environment variables for options: ``LOSSCLI_BENCH_SIZE`` sets ``losscli bench --size``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from losscli.errors import UsageError

PREFIX = "LOSSCLI"
FOR_ALL = ("device", "quiet", "debug")
"""Options that have a variable for all commands as well, such as LOSSCLI_DEVICE."""
EXCEPT = {("build", "device")}
"""Options that have other values than in other commands, so that they have only their own variable:
`losscli build` takes no ``cuda:1``."""


def variables_of(command: str, option: click.Option) -> list[str]:
    """Return the variables that set an option of a command, the one that counts most first."""
    name = long_name(option).removeprefix("--")
    own = f"{PREFIX}_{command}_{name}"
    shared = [f"{PREFIX}_{name}"] if name in FOR_ALL and (command, name) not in EXCEPT else []
    return [_upper(variable) for variable in (own, *shared)]


def long_name(option: click.Parameter) -> str:
    """Return the longest name of an option, such as ``--output``."""
    return max(option.opts, key=len)


def add_variables(command: click.Command, name: str) -> None:
    """Let variables set each option of a command, and let its help say so."""
    options = [option for option in command.params if isinstance(option, click.Option)]
    for option in options:
        option.envvar = variables_of(name, option)
        if not option.is_flag:
            option.type = _Type(option.type)
        if option.callback is not None:
            option.callback = _named(option.callback)
    example = next((option for option in options if not option.is_flag), options[0])
    command.epilog = _EPILOG.format(
        variable=variables_of(name, example)[0],
        option=long_name(example),
        shared=" and ".join(
            f"{PREFIX}_{long.upper()}"
            for option in options
            if (long := long_name(option).removeprefix("--")) in FOR_ALL
            and len(variables_of(name, option)) > 1
        ),
    )


_EPILOG = """\
A variable can set each option, e.g. {variable} for {option}; the command line has precedence.
{shared} are for all commands.
"""


def variables() -> list[str]:
    """Return ``NAME=VALUE`` of each variable that sets an option of the running command.

    Those of --quiet and --debug are left out, because they change no result.
    """
    context = click.get_current_context(silent=True)
    return [
        f"{variable}={os.environ[variable]}"
        for option in (context.command.params if context else ())
        if option.name not in ("quiet", "debug")
        if context and (variable := _variable_of(context, option))
    ]


class _Type(click.ParamType):  # type: ignore[type-arg]  # generic only in newer clicks
    """The type of an option; its errors name the variable that holds the value, if one does.

    The value of a variable is not split at spaces, for files have them.
    """

    def __init__(self, type: Any) -> None:
        self.type = type
        self.name = type.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self.type.convert(value, param, ctx)
        except UsageError as error:
            raise _with_variable(ctx, param, error) from None

    def split_envvar_value(self, rv: str) -> list[str]:
        return [rv]

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        found: list[CompletionItem] = self.type.shell_complete(ctx, param, incomplete)
        return found


def _named(callback: Callable[..., Any]) -> Callable[..., Any]:
    """Return a callback whose errors name the variable that holds the value."""

    def call(context: click.Context, option: click.Parameter, value: Any) -> Any:
        try:
            return callback(context, option, value)
        except UsageError as error:
            raise _with_variable(context, option, error) from None

    return call


def _with_variable(
    context: click.Context | None, option: click.Parameter | None, error: UsageError
) -> UsageError:
    """Return the error of a value with the variable that holds the value before it."""
    variable = context and option and _variable_of(context, option)
    if not variable or type(error) is not UsageError:
        return error
    return UsageError(f"{variable}: {error}")


def wrong_switch(error: click.UsageError) -> UsageError | None:
    """Return the error of an option that a variable switches neither on nor off."""
    if not isinstance(error, click.BadParameter) or not error.ctx or not error.param:
        return None
    variable = _variable_of(error.ctx, error.param)
    if not variable:
        return None
    return UsageError(f"{variable}: '{os.environ[variable]}' is neither on nor off. Write 1 or 0.")


def _variable_of(
    context: click.Context, option: click.Parameter, environ: Mapping[str, str] = os.environ
) -> str | None:
    """Return the variable that set an option."""
    if not option.name or not isinstance(option.envvar, list):
        return None
    if context.get_parameter_source(option.name) is not ParameterSource.ENVIRONMENT:
        return None
    return next((name for name in option.envvar if environ.get(name)), None)


def _upper(name: str) -> str:
    return name.upper().replace("-", "_")
