"""Stored runs: their records, reading and writing them, and where they are kept."""
