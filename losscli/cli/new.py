"""`losscli new`: writes a loss kernel to start from."""

from typing import get_args

import click

from losscli.cli.options import examples, named_option
from losscli.cli.variables import option
from losscli.console.streams import emit
from losscli.errors import UnfitError, UsageError
from losscli.judge.template import STARTS, Template, render, template_path


@click.command("new")
@click.argument("name", metavar="NAME")
@named_option(
    *("--loss", STARTS, f"Write a kernel of loss NAME: {', '.join(STARTS)}."),
    default="smooth_l1",
    show_default=True,
)
@named_option(
    *("--template", get_args(Template)),
    f"Write it in NAME: {', '.join(get_args(Template))}. By default torch, which needs no "
    "compiler, and cpp with --cuda or --cpu.",
)
@option(
    "--cuda/--cpu", default=None, help="Write template cpp with (default) or without a CUDA kernel."
)
@examples(
    "losscli new my_kernel",
    "losscli new my_kernel --loss hinge --template triton",
    "losscli new my_kernel --cuda",
)
def command(*, name: str, loss: str, template: Template | None, cuda: bool | None) -> None:
    """Write NAME.py, a loss kernel to start from: forward and backward.

    As written it is right for ordinary inputs, so `losscli judge` reports what an edit breaks.
    """
    if template not in (None, "cpp") and cuda is not None:
        raise UsageError(f"--cuda and --cpu are for the template cpp, not for {template}.")
    path = template_path(name)
    written = template or ("torch" if cuda is None else "cpp")
    source = render(path.stem, loss, written, cuda=cuda is not False)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(source)
    except FileExistsError:
        raise UsageError(f"'{path}' exists. Choose another name, or remove it.") from None
    except FileNotFoundError:
        raise UsageError(f"there is no directory '{path.parent}'. Create it.") from None
    except OSError as error:
        raise UnfitError(f"cannot write '{path}': {error.strerror}.") from None
    emit(f"wrote {path}; judge it with `losscli judge {path} --loss {loss}`")
