"""The row-wise losses, one per file."""
