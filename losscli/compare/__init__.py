"""Times beside each other: those of two runs, and those of losscli's kernels and their peers."""
