"""A GPU that is none, below Triton's real compiler and launch path: for programs, and for tests in one process.

Kernels are compiled for an H200 by the Triton that is installed, and launched by its own ``kernel[grid](...)``. Each is
then computed by a Python function, and a kernel with records fills its profile buffer as the device would.
"""
