"""What `python -m tools.mutate` breaks, builds and puts to the checks."""
