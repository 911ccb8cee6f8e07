"""Launch the program's kernels again, on copies of their memory, to time them."""
