"""What `python -m tests.mutate` breaks, builds and puts to the checks."""
