"""This machine: devices, memory, description, and differences between machines."""
