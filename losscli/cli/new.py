"""`losscli new`: writes a loss kernel to start from."""

from __future__ import annotations

import click

from losscli.cli.completion import OneOf
from losscli.cli.options import examples
from losscli.cli.variables import option
from losscli.console.streams import emit
from losscli.errors import UnfitError, UsageError
from losscli.judge.row_formulas import ROW_FORMULAS
from losscli.judge.template import FORMULAS, render, template_path


@click.command("new")
@click.argument("name", metavar="NAME")
@option(
    "--loss",
    type=OneOf("loss", (*FORMULAS, *ROW_FORMULAS)),
    default="smooth_l1",
    show_default=True,
    metavar="NAME",
    help=f"Write a kernel of loss NAME: {', '.join((*FORMULAS, *ROW_FORMULAS))}.",
)
@option(
    "--cuda/--cpu",
    default=True,
    help="Write a CUDA kernel beside the C++ kernel (default), or not.",
)
@examples(
    "losscli new my_kernel",
    "losscli new my_kernel --loss hinge --cpu",
)
def command(*, name: str, loss: str, cuda: bool) -> None:
    """Write NAME.py, a commented loss kernel to start from: forward and backward.

    As written it is right, so that `losscli judge` tells what an edit breaks.
    """
    path = template_path(name)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(render(path.stem, loss, cuda=cuda))
    except FileExistsError:
        raise UsageError(f"'{path}' exists. Choose another name, or remove it.") from None
    except FileNotFoundError:
        raise UsageError(f"there is no directory '{path.parent}'. Create it.") from None
    except OSError as error:
        raise UnfitError(f"cannot write '{path}': {error.strerror}.") from None
    emit(f"wrote {path}; judge it with `losscli judge {path} --loss {loss}`")
