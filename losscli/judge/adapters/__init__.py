"""Evaluators of other tools, each answered by ``losscli judge``."""
