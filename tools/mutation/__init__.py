"""The mutations of `python -m tools.mutate`, their builds and trials."""
