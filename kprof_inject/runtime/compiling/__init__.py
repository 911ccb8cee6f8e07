"""Triton's compiler as we use it: in the program, and of TTGIR text in child processes."""
