"""`losscli doctor`: whether a build and a benchmark will work here and can be trusted."""

from __future__ import annotations

import json
import sys

import click

from losscli.cli.options import device_option
from losscli.cli.variables import option
from losscli.errors import EXIT_OK, EXIT_UNFIT
from losscli.notes import status

_HELP = """\
Look for what stops or spoils a build or a benchmark on this machine.

Each line is ok, a warning (the device can be used, but something is missing or times are not to
be trusted) or a problem (the device cannot be used), with what to do. losscli only looks: it
changes no setting and builds no kernel. It works without torch, or with a broken one.

\b
Examples:
  losscli doctor
  losscli doctor --device cuda:1
  losscli doctor --device cpu --json > doctor.json

Exit codes: 0 the device can be used, 4 it cannot.
"""


@click.command("doctor", help=_HELP)
@device_option("Look whether device NAME can be used", default="auto", show_default=True)
@option("--json", "as_json", is_flag=True, help="Write the findings as JSON.")
def command(device: str, as_json: bool) -> int:
    """Look for what stops or spoils a build or a benchmark on this machine."""
    from losscli.doctor.machine import Machine
    from losscli.doctor.probes import examine
    from losscli.report.doctor import render
    from losscli.report.output import in_colour

    arguments = ("losscli", *sys.argv[1:])
    examination = examine(
        Machine(device), command=arguments, progress=lambda name: status(f"looking at {name}")
    )
    status("")
    if as_json:
        click.echo(json.dumps(examination.to_json(), indent=2))
    else:
        click.echo(render(examination, colour=in_colour()), color=in_colour())
    return EXIT_OK if examination.usable else EXIT_UNFIT
