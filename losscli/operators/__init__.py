"""Defines the operators of the losses and loads what implements them: what torch sees."""
