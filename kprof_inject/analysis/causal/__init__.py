"""Causal analysis: critical paths in a capture, and how kernel time responds to added delays."""
