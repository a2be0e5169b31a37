"""Stored runs: their records, reading, writing and location."""
