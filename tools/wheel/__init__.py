"""Builds the wheels; ``python -m tools.wheel --help``."""
