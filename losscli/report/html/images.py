"""Turns a plot into PNG: with the colours of the light theme, for renderers know no variables."""

from __future__ import annotations

import re

from losscli.errors import UnfitError
from losscli.report.html.svg import Plot

_VARIABLE = re.compile(r"(--[a-z0-9-]+)\s*:\s*(#[0-9a-f]+)")
_DARK = re.compile(r"@media [^{]*prefers-color-scheme: ?dark\)\{:root\{[^}]*\}\}")
_MISSING = (
    "PNG needs resvg-py, which is not installed. Install it with `pip install 'losscli[report]'`, "
    "or choose --format svg."
)


def png(plot: Plot, scale: int = 2) -> bytes:
    """Return a plot as PNG, with ``scale`` pixels for each of its units.

    Raises:
        UnfitError: what renders it is not installed.
    """
    try:
        import resvg_py
    except ImportError:
        raise UnfitError(_MISSING) from None
    image: bytes = bytes(resvg_py.svg_to_bytes(svg_string=in_light(plot.standalone()), zoom=scale))
    return image


def in_light(svg: str) -> str:
    """Return an SVG whose variables are replaced by the colours of the light theme."""
    plain = _DARK.sub("", svg)
    colours = dict(_VARIABLE.findall(plain))
    return re.sub(r"var\((--[a-z0-9-]+)\)", lambda found: colours[found[1]], plain)
