"""This machine: its devices and memory, what a result says of it, how two machines differ."""
