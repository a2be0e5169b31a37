"""Builds the libraries of kernels and keeps them in a cache: what compilers see."""
