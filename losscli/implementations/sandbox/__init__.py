"""Runs code of others in processes of its own, from which only bytes come back.

``process`` starts and ends a worker, ``zygote`` is the process that forks it, ``confinement``
closes it in behind walls, whose ``parts`` a verdict lists, ``server`` is what runs there,
``messages`` and ``wire`` are what goes to and fro.
This contains accidents and cheats, not a determined attacker.
"""
