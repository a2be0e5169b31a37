"""Losses whose operands are split over the ranks of a process group.

A collective that one rank omits never ends: ranks first agree on what determines calls.
"""
