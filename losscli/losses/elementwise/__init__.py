"""The losses over elements, one file a loss."""
