"""Instructions of compiled kernels."""
