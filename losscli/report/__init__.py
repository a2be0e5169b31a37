"""Reports: pure functions from a run to text, and the writer that keeps results on disk."""

from __future__ import annotations

from losscli.report.render import conclusion

from .render import render

__all__ = ["conclusion", "render"]
