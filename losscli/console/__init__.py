"""Terminal output: results, notes and progress."""
