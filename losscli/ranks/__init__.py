"""Losses whose operands are split over the ranks of a process group.

torchrun starts the ranks, which run the same command. They must take the same steps in order,
because a collective that one rank omits never ends. So ranks first agree on whatever determines the
number of calls.
"""
