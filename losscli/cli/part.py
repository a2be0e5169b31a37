"""The option --part of `losscli bench` and `losscli verify`."""

from __future__ import annotations

from losscli.cli.variables import option
from losscli.errors import UsageError
from losscli.runs.parts import Part, parse_part

part_option = option(
    "--part",
    type=parse_part,
    metavar="K/N",
    help="Run part K of N: the cases, dealt out so that all parts take as long.",
)


def refuse_listing_part(part: Part | None, *, listing: bool) -> None:
    """Refuse --part beside --list or --dry-run, which list the cases of all parts."""
    if part and listing:
        raise UsageError(
            f"--part {part} is for a run; --list and --dry-run list all parts. Leave one of them "
            "out."
        )
