"""Compares what the speed of light says of ``kernels.py`` with what Nsight Compute counted of the same kernels.

    python benchmarks/limits/against_ncu.py OUT

OUT is what ``record.py`` wrote. Prints a line for each kernel: for each unit our part and Nsight Compute's, in percent;
for bytes the two counts and their ratio; and what the report says limits it.
"""
