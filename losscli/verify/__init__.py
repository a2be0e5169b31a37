"""Checks of an implementation against the oracle."""

from losscli.verify.repeating import repeat as repeat
