"""`losscli doctor`: whether a build and a benchmark will work here and can be trusted."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from losscli.cli.options import device_option, examples
from losscli.cli.variables import switch
from losscli.console.notes import status
from losscli.console.streams import emit
from losscli.errors import EXIT_OK, EXIT_UNFIT

if TYPE_CHECKING:
    from losscli.views.document import Document


@click.command("doctor")
@device_option("Look whether device NAME can be used", default="auto", show_default=True)
@switch("--isolation", help="Attack the isolation of `losscli judge`, and print what held.")
@switch("--json", "as_json", help="Write the findings as JSON.")
@examples(
    "losscli doctor",
    "losscli doctor --device cuda:1",
    "losscli doctor --isolation",
    "losscli doctor --device cpu --json > doctor.json",
    after="Exit codes: 0 the device can be used, or each wall that this machine has holds; 4 it "
    "cannot be used, or one does not hold.",
)
def command(device: str, isolation: bool, as_json: bool) -> int:
    """Look for what stops a build or distorts a benchmark on this machine.

    Each line is ok, a warning (the device can be used, but something is missing or times are not to
    be trusted) or a problem (the device cannot be used), with what to do. losscli only looks: it
    changes no setting and builds no kernel. It works without torch, or with a broken one.

    With --isolation it starts a worker as the judge does, and tries what a hostile file could try.
    What this machine does not let losscli put up is not there, which is no error.
    """
    arguments = ("losscli", *sys.argv[1:])
    if isolation:
        return _besiege(device, arguments, as_json=as_json)
    from losscli.doctor.machine import Machine
    from losscli.doctor.probes import examine
    from losscli.views import doctor

    examination = examine(
        Machine(device), command=arguments, progress=lambda name: status(f"looking at {name}")
    )
    status("")
    if as_json:
        emit(json.dumps(examination.to_json(), indent=2))
    else:
        _show(doctor.view(examination))
    return EXIT_OK if examination.usable else EXIT_UNFIT


def _besiege(device: str, arguments: tuple[str, ...], *, as_json: bool) -> int:
    """Try the walls of the sandbox."""
    from losscli.doctor.isolation import NOT_HELD, besiege
    from losscli.machine.devices import resolve_device
    from losscli.views import doctor

    siege = besiege(
        resolve_device(device), command=arguments, progress=lambda tries: status(f"trying: {tries}")
    )
    status("")
    if as_json:
        emit(json.dumps(siege.to_json(), indent=2))
    else:
        _show(doctor.of_isolation(siege))
    return EXIT_UNFIT if siege.count(NOT_HELD) else EXIT_OK


def _show(document: Document) -> None:
    from losscli.render.output import show
    from losscli.render.text import text
    from losscli.views.doctor import STATES

    show(text(document), STATES)
