"""`losscli doctor`: whether builds and benchmarks work here and can be trusted."""

import json

import click

from losscli.cli.options import device_option, examples
from losscli.cli.variables import switch
from losscli.console.notes import status
from losscli.console.streams import emit
from losscli.errors import EXIT_OK, EXIT_UNFIT


@click.command("doctor")
@device_option("Check whether device NAME can be used", default="auto", show_default=True)
@switch("--isolation", help="Attack the isolation of `losscli judge`, and print what held.")
@switch("--json", "as_json", help="Write the findings as JSON.")
@examples(
    "losscli doctor",
    "losscli doctor --device cuda:1",
    "losscli doctor --isolation",
    "losscli doctor --device cpu --json > doctor.json",
    after="Exit codes: 0 the device can be used, or every protection held; 4 it cannot be used, or "
    "one did not hold.",
)
def command(device: str, isolation: bool, as_json: bool) -> int:
    """Find problems that stop a build or distort a benchmark on this machine.

    Each line is ok, a warning (the device can be used, but something is missing or times cannot be
    trusted) or a problem (the device cannot be used), with what to do. `losscli doctor` changes no
    setting and builds no kernel. It works without torch, or with a broken one.

    With --isolation it starts a worker as the judge does, and tries the attacks of a hostile file.
    A protection that this machine does not support is reported as not there; that is not an error.
    """
    from losscli.doctor import isolation as walls
    from losscli.doctor import probes
    from losscli.doctor.machine import Machine
    from losscli.machine.devices import resolve_device
    from losscli.render.output import show
    from losscli.render.text import text
    from losscli.views import doctor

    if isolation:
        siege = walls.besiege(resolve_device(device), lambda it: status(f"trying: {it}"))
        document, well = doctor.of_isolation(siege), not siege.count(walls.NOT_HELD)
        data = siege.to_json()
    else:
        found = probes.examine(Machine(device), progress=lambda it: status(f"looking at {it}"))
        document, well, data = doctor.view(found), found.usable, found.to_json()
    status("")
    if as_json:
        emit(json.dumps(data, indent=2))
    else:
        show(text(document), doctor.STATES)
    return EXIT_OK if well else EXIT_UNFIT
