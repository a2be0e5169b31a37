"""The elementwise losses, one per file."""
