"""The truth: the inputs of a case, the float64 oracle, and the tolerances."""
