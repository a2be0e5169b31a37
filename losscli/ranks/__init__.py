"""Losses whose operands are split over ranks, which must agree on all collectives."""
