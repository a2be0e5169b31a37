"""Judges a module against any ``Model``: where no loss of losscli has its formula."""
