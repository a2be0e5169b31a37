"""Checks whether builds and benchmarks work here and can be trusted.

``probes`` lists all probes. A probe is a function in ``software``, ``building``, ``host`` or
``gpu`` that examines a ``machine`` and returns an answer, see ``findings``. ``questions`` runs what
may crash or hang, such as ``import torch``, in a separate process.
"""
