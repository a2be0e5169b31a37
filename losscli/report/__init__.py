"""Reporters: pure functions from a run to text."""
