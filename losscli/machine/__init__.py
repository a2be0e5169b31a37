"""This machine: its devices and memory, its description, and the differences of two machines."""
