"""Causal analysis: how a kernel's time responds to added delays."""
