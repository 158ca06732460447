"""Benchmarks, one module for each family of kernels. A class names in `kernels` which registered ones it measures; tests/test_registry.py looks there."""
