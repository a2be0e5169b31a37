"""What is written to a terminal: output, notes and progress."""
