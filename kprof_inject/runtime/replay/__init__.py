"""Launches that we make of the program's kernels, on copies of their memory, to time them."""
