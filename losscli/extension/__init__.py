"""Build the kernels, keep them in a cache, load them."""
