"""Losses whose operands are split over the processes of a group, which are called ranks.

torchrun starts the ranks, and each runs the same command. They have to take the same steps in the
same order, because a collective that one of them leaves out would never end for the others. So
whatever decides how often something is called is agreed on first.
"""
