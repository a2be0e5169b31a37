"""Defines the operators of losses and loads their libraries."""
