"""Losses whose classes are spread over real ranks, against the oracle of all classes."""
