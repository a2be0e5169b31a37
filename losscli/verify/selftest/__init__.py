"""The self-test of verify: wrong implementations have to fail, correct ones have to pass."""
