"""Measurement of the cost of records, in a process of its own."""
