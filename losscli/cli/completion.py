"""`losscli completion`, and the values that a shell completes, without importing torch."""

import os
from collections.abc import Callable, Iterable
from typing import Any

import click
from click import shell_completion
from click.shell_completion import BashComplete, CompletionItem

from losscli.console.streams import emit
from losscli.errors import LosscliError

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

DEVICES = ("auto", "cpu", "cuda")


def listed(
    names: Callable[[], Iterable[str]], *, files: bool = False, commas: bool = False
) -> Complete:
    """Return a completion of names, or files too; with ``commas`` the value is a list."""

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
    """Complete files and devices in a command."""
    for parameter in command.params:
        if parameter._custom_shell_complete:
            continue
        if parameter.metavar in ("FILE", "FILE...", "PATH"):
            parameter._custom_shell_complete = listed(list, files=True)
        elif parameter.name == "device" and not isinstance(parameter.type, OneOf):
            parameter._custom_shell_complete = listed(lambda: DEVICES)


class OneOf(click.ParamType):  # type: ignore[type-arg]  # generic only in newer clicks
    """An option or argument that takes one of a few names."""

    name = "name"

    def __init__(self, kind: str, candidates: Iterable[str]) -> None:
        self.kind, self.candidates = kind, tuple(candidates)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name, or raise UsageError with the candidates."""
        from losscli.config.fields import check_name

        return check_name(self.kind, value, self.candidates)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names with this prefix."""
        return listed(lambda: self.candidates)(ctx, param, incomplete)


SHELLS = ("bash", "zsh", "fish")

_BASH = """\
%(complete_func)s() {
    local IFS=$'\\n' completion type value
    COMPREPLY=()
    for completion in $(COMP_LINE="${COMP_LINE:0:COMP_POINT}" \\
        COMP_WORD="${COMP_WORDS[COMP_CWORD]}" %(complete_var)s=bash_complete "$1"); do
        IFS=',' read -r type value <<< "$completion"
        case $type in
            file) compopt -o default ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class _Bash(BashComplete):
    """Bash splits words at ``:`` and ``=``, which values of losscli contain."""

    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ.get("COMP_LINE", "")
        words = shell_completion.split_arg_string(line)[1:]
        incomplete = words.pop() if words and not line[-1:].isspace() else ""
        value = incomplete.partition("=")[2] if incomplete.startswith("--") else incomplete
        word = os.environ.get("COMP_WORD", "")
        self._before = value.removesuffix(word if word not in (":", "=") else "")
        return words, incomplete

    def format_completion(self, item: CompletionItem[str]) -> str:
        return f"{item.type},{item.value.removeprefix(self._before)}"


shell_completion.add_completion_class(_Bash)


@click.command("completion")
@click.argument("shell", type=OneOf("shell", SHELLS), metavar=f"{{{'|'.join(SHELLS)}}}")
def command(shell: str) -> None:
    """Print a script that completes commands, options and values in bash, zsh or fish.

    Add the line of your shell below to its startup file.

    \b
    Examples:
      eval "$(losscli completion bash)"     in ~/.bashrc
      eval "$(losscli completion zsh)"      in ~/.zshrc, after compinit
      losscli completion fish | source      in ~/.config/fish/config.fish
    """  # noqa: D301
    found = shell_completion.get_completion_class(shell)
    assert found
    context = click.get_current_context().find_root()
    script = found(context.command, {}, "losscli", "_LOSSCLI_COMPLETE")
    # The version of bash that click would look for is that of the shell that asks.
    emit(script.source_template % script.source_vars(), end="")
