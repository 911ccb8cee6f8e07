"""The parts of kprof-inject that run inside the program, and those that need Triton or torch."""
