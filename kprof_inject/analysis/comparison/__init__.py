"""Comparison of two captures: what is compared with what, what changed for certain, and why."""
