"""Losses of hidden states: their specs, and in which parts their logits are made."""
