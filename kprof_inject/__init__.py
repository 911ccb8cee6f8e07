"""Times the inside of one Triton kernel launch by inserting Proton records into its TTGIR."""

__version__ = "0.1.0"
