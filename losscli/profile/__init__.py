"""Profiles one case of one implementation: runs it under a profiler, and says what bounds it.

``bare`` is what runs under the profiler; ``nsight_compute`` and ``torch_profiler`` read what the
profilers say into the records of ``record``; ``bounds`` decides.
"""
