"""The entry point of the command line: runs a command, turns errors into exit codes."""

import errno
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from types import FrameType
from typing import Any

import click

from losscli import errors
from losscli.cli import dependencies, interrupts
from losscli.cli.completion import add_completion
from losscli.cli.variables import add_variables, wrong_switch
from losscli.console.notes import QUIET_VARIABLE, is_on, is_quiet, status
from losscli.console.streams import RED, coloured, emit, give_up_broken, in_colour, prepare, tell
from losscli.errors import LosscliError, RankError, UsageError, printable, unknown
from losscli.machine.memory import is_out_of_memory
from losscli.processes.process import FALLBACK_VARIABLE
from losscli.ranks.place import is_silent

COMMANDS = {
    "build": "Compile the kernels for this machine.",
    "verify": "Check implementations against the formula in float64.",
    "bench": "Time implementations side by side.",
    "profile": "Find what limits the speed of a loss, with a profiler.",
    "judge": "Judge your own or third-party loss kernels, each in a sandbox.",
    "new": "Write a loss to start from, in PyTorch, Triton or C++.",
    "report": "Write a page with plots of saved runs, verdicts or comparisons.",
    "compare": "Compare saved runs or result files with a base run.",
    "history": "Show saved runs over commits, and the commits that changed them.",
    "export": "Write a run for Bencher, github-action-benchmark or OpenMetrics.",
    "runs": "List, show or remove saved runs, or merge the parts of one.",
    "guide": "Print how to benchmark a kernel without fooling yourself.",
    "doctor": "Find problems that stop a build or distort a benchmark.",
    "self-test": "Test the timer, the checks and the judge of losscli itself.",
    "config": "Check configs, show one in full, or print their JSON Schema.",
    "list": "List losses, implementations, checks, devices, configs, columns.",
    "completion": "Print a script that completes commands in bash, zsh or fish.",
}
"""Each command is ``losscli/cli/NAME.py``, ``_`` for ``-``; `losscli --help` imports none."""
HIDDEN = ("judge-job",)


def _show_version(context: click.Context, option: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        from losscli.cli.version import describe

        emit(describe())
        context.exit()


def _remember_quiet(context: click.Context, option: click.Parameter, value: bool) -> None:
    if value and not is_quiet():  # child processes are quiet too
        os.environ[QUIET_VARIABLE] = "1"


_switch = partial(click.Option, is_flag=True, expose_value=False)
_debug = partial(_switch, ["--debug"], help="Show the traceback of an error.")
_quiet = partial(
    _switch,
    ["-q", "--quiet"],
    callback=_remember_quiet,
    help="Write only errors to standard error.",
)
_version = _switch(
    ["--version"],
    is_eager=True,
    callback=_show_version,
    help="Show the versions of losscli, torch and the compiler, and the cache.",
)


class _InterruptedError(Exception):
    """A KeyboardInterrupt that passes click, which would print an empty line for it."""


def _equip(command: click.Command, name: str) -> None:
    """Add to a command, and to those of a group: options, variables, completion."""
    if any(option.name == "debug" for option in command.params):
        return
    command.params += [_quiet(), _debug()]
    if name not in HIDDEN:
        add_variables(command, name)
        add_completion(command)
    if isinstance(command, click.Group):
        for part in command.commands.values():
            _equip(part, f"{name}_{part.name}")


class _LazyGroup(click.Group):
    """A group that imports a command only to run it."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            if sys.stderr.isatty():
                tell("")  # the terminal has written ^C
            raise _InterruptedError from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in (*COMMANDS, *HIDDEN):
            if cmd_name.startswith("-"):
                return None
            raise UsageError(unknown("command", cmd_name, COMMANDS))
        if cmd_name != "doctor":  # which reports missing packages itself
            dependencies.require()
        module = cmd_name.replace("-", "_")
        command: click.Command = import_module(f"losscli.cli.{module}").command
        _equip(command, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    name="losscli",
    cls=_LazyGroup,
    params=[_version, _debug()],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
def group() -> None:
    """Judge, verify and time loss kernels against PyTorch.

    \b
    Exit codes:
      0    success
      1    a check failed
      2    wrong usage or config
      3    a build failed
      4    this machine cannot run what was asked
      70   internal error of losscli
      130  interrupted
      141  output pipe closed
    """  # noqa: D301


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    prepare()
    try:
        return _run(list(sys.argv[1:] if arguments is None else arguments))
    except BrokenPipeError:  # nobody reads the message either
        return errors.EXIT_BROKEN_PIPE
    finally:
        give_up_broken()


def _run(arguments: list[str]) -> int:
    """Run the command line; a broken pipe may still escape from its messages."""
    with _restored(QUIET_VARIABLE, FALLBACK_VARIABLE), _interruptible() as received:
        # Commands measure and check kernels, never the formulas that may replace them.
        os.environ[FALLBACK_VARIABLE] = "error"
        try:
            result = group.main(arguments, prog_name="losscli", standalone_mode=False)
            sys.stdout.flush()
            code = result if isinstance(result, int) else errors.EXIT_OK
        except SystemExit as ended:
            # click exits with 1 on a broken pipe, which here would say that a check failed.
            if ended.code != errors.EXIT_FAILED:
                raise
            code = _explain(BrokenPipeError())
        except (Exception, KeyboardInterrupt) as error:
            if "--debug" in arguments or is_on("LOSSCLI_DEBUG"):
                traceback.print_exc()
            if not received:
                return _explain(error)
            # The error comes from the interrupt, whatever it says.
            code = errors.EXIT_FAILED
    if received and code != errors.EXIT_INTERRUPTED:
        return _explain(KeyboardInterrupt())
    return code


@contextmanager
def _restored(*variables: str) -> Iterator[None]:
    before = {name: os.environ[name] for name in variables if name in os.environ}
    try:
        yield
    finally:
        for name in variables:
            os.environ.pop(name, None)
        os.environ.update(before)


@contextmanager
def _interruptible() -> Iterator[list[float]]:
    """Treat each signal that ends a run as Ctrl-C; yield when they came.

    Called code may swallow the exception, so the signals are kept too. While torch or numpy, which
    swallow it, is being imported, the program ends at once.
    """
    interrupts.received.clear()  # those of an earlier command

    def interrupt(signum: int, frame: FrameType | None) -> None:
        specs = (getattr(sys.modules.get(name), "__spec__", None) for name in ("torch", "numpy"))
        if any(getattr(spec, "_initializing", False) for spec in specs):
            interrupts.end_at_once()
        interrupts.receive()

    previous = {number: signal.signal(number, interrupt) for number in interrupts.numbers()}
    try:
        yield interrupts.received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _explain(error: BaseException) -> int:
    if isinstance(error, BrokenPipeError):
        # A shell's exit code for a program that SIGPIPE ended.
        return errors.EXIT_BROKEN_PIPE
    status("")
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return errors.EXIT_USAGE
    if isinstance(error, click.Abort | KeyboardInterrupt | _InterruptedError):
        if not is_silent():
            tell("losscli: interrupted")
        return errors.EXIT_INTERRUPTED
    message, code = _message(error)
    told = is_silent() and code != errors.EXIT_UNEXPECTED
    if error.is_told if isinstance(error, RankError) else told:
        return code  # all ranks have the error; another one reports it
    text = coloured("error:", RED) if in_colour(sys.stderr) else "error:"
    tell(f"losscli: {text} {printable(message)}")
    return code


_INSTEAD = {
    "losscli bench --quick": "losscli bench --budget 30s",
    "losscli verify --budget": "losscli verify --quick",
}
"""Suggestions for options that another command has."""


def _message(error: BaseException) -> tuple[str, int]:
    if isinstance(error, LosscliError):
        return str(error), error.exit_code
    if isinstance(error, click.UsageError):
        if told := wrong_switch(error):
            return told, errors.EXIT_USAGE
        command = error.ctx.command_path if error.ctx else "losscli"
        if isinstance(error, click.NoSuchOption):
            told = f"{command} has no option {error.option_name}."
            if (name := error.option_name.lstrip("-")) in COMMANDS:
                return f"{told} Run `losscli {name}`, a separate command.", errors.EXIT_USAGE
            if instead := _INSTEAD.get(f"{command} {error.option_name}"):
                return f"{told} Write `{instead}`, or see `{command} --help`.", errors.EXIT_USAGE
        return f"{error.format_message()} See `{command} --help`.", errors.EXIT_USAGE
    if isinstance(error, click.ClickException):
        return error.format_message(), errors.EXIT_USAGE
    if trouble := dependencies.trouble(error):
        return trouble, errors.EXIT_UNFIT
    if isinstance(error, MemoryError) or ("torch" in sys.modules and is_out_of_memory(error)):
        advice = "Choose smaller sizes; --dry-run shows which cases fit."
        return f"out of memory. {advice}", errors.EXIT_UNFIT
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        told = f"no space left on the device of {error.filename or 'the output'}."
        return told, errors.EXIT_UNFIT
    summary = f"unexpected {type(error).__name__}: {error}".splitlines()[0]
    return f"{summary} (run again with --debug for the traceback)", errors.EXIT_UNEXPECTED
