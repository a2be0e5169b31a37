"""Profiles one implementation on one case, and determines what bounds it.

``bare`` runs under the profiler; ``nsight_compute`` and ``torch_profiler`` read its output into
``record``; ``bounds`` decides.
"""
