"""Runs third-party code in separate processes that return only bytes.

``client`` starts and ends workers, ``zygote`` forks them, ``confinement`` isolates them, ``server``
runs inside them, and ``wire`` carries the data. This contains accidents and cheats, not a
determined attacker.
"""
