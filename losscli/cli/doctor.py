"""`losscli doctor`: whether a build and a benchmark will work here and can be trusted."""

from __future__ import annotations

import json
import sys

import click

from losscli.cli.options import device_option, examples
from losscli.cli.variables import switch
from losscli.errors import EXIT_OK, EXIT_UNFIT
from losscli.notes import status
from losscli.streams import emit, in_colour


@click.command("doctor")
@device_option("Look whether device NAME can be used", default="auto", show_default=True)
@switch("--json", "as_json", help="Write the findings as JSON.")
@examples(
    "losscli doctor",
    "losscli doctor --device cuda:1",
    "losscli doctor --device cpu --json > doctor.json",
    after="Exit codes: 0 the device can be used, 4 it cannot.",
)
def command(device: str, as_json: bool) -> int:
    """Look for what stops or spoils a build or a benchmark on this machine.

    Each line is ok, a warning (the device can be used, but something is missing or times are not to
    be trusted) or a problem (the device cannot be used), with what to do. losscli only looks: it
    changes no setting and builds no kernel. It works without torch, or with a broken one.
    """
    from losscli.doctor.machine import Machine
    from losscli.doctor.probes import examine
    from losscli.report.doctor import render

    arguments = ("losscli", *sys.argv[1:])
    examination = examine(
        Machine(device), command=arguments, progress=lambda name: status(f"looking at {name}")
    )
    status("")
    if as_json:
        emit(json.dumps(examination.to_json(), indent=2))
    else:
        emit(render(examination, colour=in_colour()))
    return EXIT_OK if examination.usable else EXIT_UNFIT
