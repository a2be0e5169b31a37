"""Profiles one implementation on one case, and determines what bounds it."""
