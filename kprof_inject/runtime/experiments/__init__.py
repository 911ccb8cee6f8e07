"""Causal experiments: builds of a kernel with delays, timed in turn with the kernel itself."""
