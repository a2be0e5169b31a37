"""The reference of a case: its inputs, the float64 oracle, and the tolerances."""
