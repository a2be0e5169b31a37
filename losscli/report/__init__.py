"""Reports: pure functions from a run to text, and the writer that keeps results on disk."""
