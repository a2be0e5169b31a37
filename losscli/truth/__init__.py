"""What is right: the inputs of a case, the float64 oracle, and how far a result may be off."""
