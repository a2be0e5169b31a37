"""Timing implementations side by side."""
