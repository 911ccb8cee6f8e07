"""Use Triton's compiler: inside the program, and for TTGIR text in child processes."""
