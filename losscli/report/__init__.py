"""Reports of verdicts, and the writer that keeps them on disk."""
