"""Finds out what decides whether a build and a benchmark will work here and can be trusted.

``probes`` is the table of all probes. A probe is a function in ``software``, ``building``, ``host``
or ``gpu`` that looks at a ``machine`` and returns an answer; ``findings`` says what that is. What
may crash or hang, such as ``import torch``, ``questions`` asks in a process of its own.
"""
