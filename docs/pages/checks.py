"""The list of the checks of `losscli verify`."""

from __future__ import annotations

from losscli.verify.checks import CHECKS


def page() -> str:
    """Return the page of all checks, each with what its own documentation says."""
    parts = [
        "# Checks\n",
        "The checks of `losscli verify`, in the order in which they run. [Verification]"
        "(../verification.md#the-checks) says what each one catches.\n",
    ]
    parts += [f"- `{name}`" for name in CHECKS]
    return "\n".join(parts) + "\n"
