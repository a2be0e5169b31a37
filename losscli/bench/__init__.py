"""Time implementations, interleaved."""
