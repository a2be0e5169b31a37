"""Comparisons of times: of two runs, and of losscli's kernels with their baselines."""
