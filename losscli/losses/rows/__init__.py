"""The losses over rows, one file a loss."""
