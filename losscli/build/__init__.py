"""Builds kernel libraries and stores them in a cache."""
