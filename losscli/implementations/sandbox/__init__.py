"""Runs third-party code in separate processes that return only bytes; see docs/isolation.md."""
