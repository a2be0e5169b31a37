"""`losscli completion`: prints what makes a shell complete commands, options and values."""

from __future__ import annotations

import os
from typing import ClassVar

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    add_completion_class,
    get_completion_class,
    split_arg_string,
)

from losscli.cli.completing import COMPLETE, OneOf

PROGRAM = "losscli"
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
    """Bash, whose words end at ``:`` and ``=``, which values of losscli contain."""

    source_template: ClassVar[str] = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ.get("COMP_LINE", "")
        words = split_arg_string(line)[1:]
        incomplete = words.pop() if words and not line[-1:].isspace() else ""
        value = incomplete.partition("=")[2] if incomplete.startswith("--") else incomplete
        word = os.environ.get("COMP_WORD", "")
        self._before = value.removesuffix(word if word not in (":", "=") else "")
        return words, incomplete

    def format_completion(self, item: CompletionItem[str]) -> str:
        return f"{item.type},{item.value.removeprefix(self._before)}"


add_completion_class(_Bash)

_HELP = """\
Print what makes bash, zsh or fish complete commands, options and values.

Add the line of your shell to its startup file:

\b
Examples:
  eval "$(losscli completion bash)"     in ~/.bashrc
  eval "$(losscli completion zsh)"      in ~/.zshrc, after compinit
  losscli completion fish | source      in ~/.config/fish/config.fish
"""


@click.command("completion", help=_HELP)
@click.argument("shell", type=OneOf("shell", SHELLS), metavar=f"[{'|'.join(SHELLS)}]")
def command(shell: str) -> None:
    """Print the completion script of a shell."""
    found = get_completion_class(shell)
    assert found
    context = click.get_current_context().find_root()
    script = found(context.command, {}, PROGRAM, COMPLETE)
    # The version of bash that click would look for is that of the shell that asks.
    click.echo(script.source_template % script.source_vars(), nl=False)
