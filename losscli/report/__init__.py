"""Reporters: pure functions from a run to text, and the writer that keeps results on disk."""

from __future__ import annotations

from .render import digest, render

__all__ = ["digest", "render"]
