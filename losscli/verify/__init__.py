"""Checks of an implementation against the oracle."""
