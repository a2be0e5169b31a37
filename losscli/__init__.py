"""Build, verify and time loss kernels against PyTorch."""

__version__ = "0.1.0"
