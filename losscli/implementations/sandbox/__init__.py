"""Runs third-party code in separate processes that return only bytes.

This contains accidents and cheats, not a determined attacker.
"""
